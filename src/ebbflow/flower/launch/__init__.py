"""The processes of a federation on one machine: made, taken up, followed and taken down."""
