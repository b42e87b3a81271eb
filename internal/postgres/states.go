package postgres

// The numbers of states in SQL. Partial indexes name them, so that they stand in the text of a
// statement and are no parameters. A test holds them against package webhook.
const (
	Pending      = "0" // webhook.StatePending, and so on
	Retrying     = "1"
	Held         = "2"
	Delivered    = "3"
	DeadLettered = "4"
	Discarded    = "6"

	IsOpen     = "< 3"          // pending, retrying or held
	IsFinished = "in (3, 5, 6)" // delivered, cancelled or discarded: no replay of dead letters opens it again

	EndpointActive = "0" // webhook.EndpointActive

	ReplayRunning = "0" // webhook.ReplayRunning
	ReplayIsOpen  = "< 2"
	ReplayIsOver  = "> 1"
	ReplayOfHeld  = "2" // webhook.ReplayHeld, a source

	NoCommand     = "0" // webhook.CommandNone
	CommandCancel = "1" // webhook.CommandCancel
)
