package webhook

import "time"

// MaxGroups is the largest number of groups of dead letters that are listed.
const MaxGroups = 100

// DeadLetterGroup is what dead letters of one endpoint with the same cause have in common.
type DeadLetterGroup struct {
	EndpointID EndpointID
	Reason     string
	Status     int // of the last attempt; 0 for none
	Count      int
	Oldest     time.Time // creation of the oldest counted one
	Newest     time.Time
	Example    DeliveryID // the newest
}

// DeadLetterGroups are the groups of a tenant's newest dead letters, the largest group first.
type DeadLetterGroups struct {
	Groups  []DeadLetterGroup // at most MaxGroups
	Counted int               // of all groups; at most MaxCounted
	More    bool              // there are older ones, which are not counted
}
