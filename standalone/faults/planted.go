package main

import (
	"context"
	"io"
)

func runPlanted(context.Context, string, string, string, io.Writer) error { return nil }
func writeLedger(string, string) error                                    { return nil }
