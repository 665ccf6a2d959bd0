"""Rows for people and for programs: a Table, and the one way to write it to a terminal, a page or a file.

    Table("Summary", {"compiler": "name", "cells": "count", "right": "share"}, [("inductor", 12, 1.0)])

A Table is a title, its columns (the name of each, and the kind of its cells) and rows of plain values. A Report is an
answer in a sentence, a table that sums up, a table of what is not good, and all rows. Names and messages in them are
strangers': every writer escapes them.

- `nouns`: Table and Report; the kinds of cells, and each as text.
- `terminal`: columns that fit a terminal, and lines with tabs for a pipe.
- `page`: one HTML file, which sorts and filters. `pictures`: its pictures, by matplotlib. `shared`: without
  the paths of this machine.
- `notebook`: a piece of HTML, as a notebook shows what a function returns.
- `files`: CSV, JSON lines and Parquet.
"""
