"""The report on measured results: reading, tables, plots, and README.md's part of them. bench/report.py is the program."""
