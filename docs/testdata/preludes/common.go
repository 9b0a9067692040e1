// Package prelude declares what blocks of all pages use without declaring it. The other files
// are for the page that they are named after.
package prelude

var ctx context.Context
