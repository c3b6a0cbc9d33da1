"""What tables.py puts into README.md and docs/: tables and pictures of the records, and the diagrams of docs/kernels.md.

columns                  a table's columns: a head, and the cell below it for a row of a record
products                 tables with a line for each row of a record
programs, verdicts       tables of whole programs' steps, and of the verdicts of `mm32 verify` on many candidates
grouped, overviews       tables whose lines draw on several rows of a record, and on several records
pictures, diagrams       the pictures of records, and the diagrams, both drawn with `drawing`
"""
