"""What tables.py puts into README.md and docs/: tables and pictures of the records, and the diagrams of docs/kernels.md.

columns                  a table's columns: a head, and what stands below it for a row of a record
products                 tables with one row of a record a line
programs, verdicts       tables of whole programs' steps, and of what `mm32 verify` made of many candidates
grouped, overviews       tables with several rows of a record, and with several records, a line
pictures, diagrams       the pictures of records, and the diagrams, both drawn with `drawing`
"""
