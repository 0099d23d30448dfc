"""What benchmarks share: result files, bars, tables, intervals."""
