"""A run's records as tables: for data frames, spreadsheets and papers."""
