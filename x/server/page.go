package server

import (
	"net/url"
	"strconv"
)

// maxPage bounds the semaphores, or the holders and waiters, of one reply, and is the
// default. The rest is on further pages.
const maxPage = 1000

// A page is a part of a list. Zero is the first page of the default size.
type page struct {
	limit int    // entries at most; 0: maxPage
	after string // the cursor of the page before; "": the first page
}

// newPage checks the size of a page.
func newPage(limit int64, after string) (page, error) {
	if limit < 0 || limit > maxPage {
		return page{}, invalid("limit: %d: want 1 to %d; the reply says how to get the rest (next)", limit, maxPage)
	}
	return page{int(limit), after}, nil
}

// pageOf reads ?limit= and ?after= of a request.
func pageOf(query url.Values) (page, error) {
	text := query.Get("limit")
	if text == "" {
		return newPage(0, query.Get("after"))
	}
	limit, err := strconv.ParseInt(text, 10, 32)
	if err != nil || limit == 0 {
		return page{}, invalid("limit: %s: want 1 to %d; the reply says how to get the rest (next)", quote(text), maxPage)
	}
	return newPage(limit, query.Get("after"))
}

func (p page) size() int {
	if p.limit == 0 {
		return maxPage
	}
	return p.limit
}
