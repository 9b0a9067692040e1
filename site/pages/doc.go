// Package pages renders the documents of Sema as a site: static HTML with search, light and
// dark colours, usable on a phone. Pages link to each other with relative addresses, so
// that the site works from any directory, and load nothing from other hosts.
//
// The navigation is what docs/README.md links to, in that order, so a page that the index
// does not list is an error. Headings have the anchors that GitHub gives them. Links to
// files that are not part of the site lead to the repository, except for those to doc.go and
// to the description of the HTTP API: these lead to pages made from the source.
//
// It is for the documents of this repository only: the layout of docs and the look of the
// pages are fixed.
package pages
