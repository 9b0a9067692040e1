package docs

import "embed"

// Files are the documents and their images, for the site and for sema serve.
//
//go:embed *.md */*.md */*.svg */*.png
var Files embed.FS

// Repository is the address of the source code.
const Repository = "https://github.com/sema-go/sema"
