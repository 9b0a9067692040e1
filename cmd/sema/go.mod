module github.com/sema-go/sema/cmd/sema

go 1.26.0

replace github.com/sema-go/sema => ../../
