//go:build !linux

package localpg_test

const lazyInit = "LOCALPG_TEST_LAZY_INIT"

// beLazyInit is available on Linux only.
func beLazyInit() int { return 1 }
