module github.com/sema-go/sema/bench

go 1.26.0

require (
	github.com/failsafe-go/failsafe-go v0.9.8
	github.com/jackc/puddle/v2 v2.2.3
	github.com/sema-go/sema v0.0.0
	golang.org/x/sync v0.24.0
)

require github.com/bits-and-blooms/bitset v1.24.4 // indirect

replace github.com/sema-go/sema => ../
