//go:build !linux

package e2e_test

const lazyInit = "EVERPOST_TEST_LAZY_INIT"

// beLazyInit needs what only Linux has.
func beLazyInit(string) int { return 1 }
