package postgres

// The numbers of states in SQL. Partial indexes name them, so they are part of a statement's text
// and not parameters. A test compares them with package webhook.
const (
	Pending      = "0" // webhook.StatePending, and so on
	Retrying     = "1"
	Held         = "2"
	Delivered    = "3"
	DeadLettered = "4"
	Discarded    = "6"

	IsOpen     = "< 3"          // pending, retrying or held
	IsFinished = "in (3, 5, 6)" // delivered, cancelled or discarded: a replay of dead letters does not reopen it

	EndpointActive = "0" // webhook.EndpointActive
	EndpointPaused = "1" // webhook.EndpointPaused

	ReplayRunning = "0" // webhook.ReplayRunning
	ReplayPaused  = "1" // webhook.ReplayPaused
	ReplayQueued  = "4" // webhook.ReplayQueued
	ReplayIsOpen  = "in (0, 1, 4)"
	ReplayIsOver  = "in (2, 3)"

	NoCommand     = "0" // webhook.CommandNone
	CommandCancel = "1" // webhook.CommandCancel
)
