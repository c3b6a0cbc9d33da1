"""Measurement of speed with the error beside it: `measure` times and judges, `suite` says what, `record` keeps it."""
