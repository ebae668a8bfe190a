"""The questions that pages ask before they show the answer: one table for each page, as TOML."""
