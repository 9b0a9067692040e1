package server

import (
	"net/url"
	"strconv"
)

// maxPage bounds the entries of one reply: semaphores, or holders and waiters. It is also the
// default. The remaining entries are on further pages.
const maxPage = 1000

// A page selects a part of a list. The zero value is the first page of the default size.
type page struct {
	limit int    // maximum number of entries; 0: maxPage
	after string // cursor from the previous page; "": first page
}

// newPage returns a page, if its size is valid.
func newPage(limit int64, after string) (page, error) {
	if limit < 0 || limit > maxPage {
		return page{}, invalid("limit: %d: want 1 to %d; the reply has the cursor of the next page (next)", limit, maxPage)
	}
	return page{int(limit), after}, nil
}

// pageOf parses the query parameters limit and after.
func pageOf(query url.Values) (page, error) {
	text := query.Get("limit")
	if text == "" {
		return newPage(0, query.Get("after"))
	}
	limit, err := strconv.ParseInt(text, 10, 32)
	if err != nil || limit == 0 {
		return page{}, invalid("limit: %s: want 1 to %d; the reply has the cursor of the next page (next)", quote(text), maxPage)
	}
	return newPage(limit, query.Get("after"))
}

func (p page) size() int {
	if p.limit == 0 {
		return maxPage
	}
	return p.limit
}
