"""Measures speed and error: `suite` names cases, `measure` and `peers` run them, `record` stores, `summary` and `plots` show."""
