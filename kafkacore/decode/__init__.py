"""What values hold, as typed Arrow columns: one file per format, and the schema registry. Takes pyarrow."""
