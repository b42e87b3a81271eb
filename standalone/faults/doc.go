// Command faults runs real installations of Everpost under load, makes something fail in the middle, and checks that
// nothing is lost, nothing unexpected is sent, and nothing is left behind. docs/reliability.md says what it covers.
//
// A run is one seed of one class of faults on one shape of installation. Its load follows from the seed, so a run that
// fails can be repeated by the command that the failure prints.
package main
