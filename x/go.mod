module github.com/sema-go/sema/x

go 1.26.0

replace github.com/sema-go/sema => ../
