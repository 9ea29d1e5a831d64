"""The report: one self-contained HTML page of a run, or of two beside each other. A view of the store, not a stage."""
