package main

func writeLedger(string, string) error { return nil }
