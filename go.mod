module github.com/sema-go/sema

go 1.26
