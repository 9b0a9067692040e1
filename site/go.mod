module github.com/sema-go/sema/site

go 1.26.0

require (
	github.com/chromedp/cdproto v0.157.8
	github.com/chromedp/chromedp v0.21.0
	github.com/sema-go/sema v0.0.0
	github.com/yuin/goldmark v1.8.7
)

require github.com/go-json-experiment/json v0.0.0-20260213210345-44df1a37e875 // indirect

replace github.com/sema-go/sema => ../
