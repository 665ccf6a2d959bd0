"""Tables and figures as plain values, and the formats that they are written in.

- `nouns`: Report, Table, Column, Figure. `formats`: Markdown, HTML, CSV, Parquet, JSON lines. `svg`: charts.
- `terminal`: what a terminal shows of a report. `together`: names and guards that differ in numbers alone, as one.
"""
