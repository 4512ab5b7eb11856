module milena/compat/harness

go 1.26.0
