module github.com/sema-go/sema/site

go 1.26.0

require (
	github.com/sema-go/sema v0.0.0
	github.com/yuin/goldmark v1.8.7
)

replace github.com/sema-go/sema => ../
