//go:build !linux

package localpg_test

const lazyInit = "LOCALPG_TEST_LAZY_INIT"

// beLazyInit needs what only Linux has.
func beLazyInit() int { return 1 }
