// Package record has no code of its own: its test records the histories that the
// replay test of the workflows package runs against.
package record
