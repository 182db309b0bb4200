"""The tests mirror both packages; `cases` holds the tables of operations."""
