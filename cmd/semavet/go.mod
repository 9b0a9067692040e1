module github.com/sema-go/sema/cmd/semavet

go 1.26.0

replace github.com/sema-go/sema => ../../

require (
	github.com/sema-go/sema v0.0.0
	golang.org/x/tools v0.51.0
)

require (
	golang.org/x/mod v0.41.0 // indirect
	golang.org/x/sync v0.23.0 // indirect
)
