package webhook

import (
	"net"
	"net/netip"
	"time"
)

// Lanes is the number of lanes, which is that of the rows in the database.
const Lanes = 64

// LaneOf is the lane that an endpoint belongs to. The last byte of an id is random.
func LaneOf(id EndpointID) int { return int(id[len(id)-1]) % Lanes }

// Process is a process that shares the limits of endpoints with others, or forwards deliveries to those that do.
type Process struct {
	ID          string
	Address     string   // where the others reach it, "10.1.2.3:8082"; "" for one that owns no lanes
	Certificate [32]byte // the SHA-256 hash of its certificate
	Leaving     bool     // it stops, and takes no lanes
	// Machine identifies the network that its loopback addresses belong to: processes with the same reach each other there.
	Machine string
}

// IsLocal reports whether the address is one that only processes of the same machine reach.
func (p *Process) IsLocal() bool {
	host, _, err := net.SplitHostPort(p.Address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback() || host == "localhost"
}

// Lane says which process owns a lane. The owner admits the requests to its endpoints, for all processes.
type Lane struct {
	Owner string // the id of a process; "" if the lane has none
	Epoch int64  // rises with each new owner
}

// TakenLane is a lane that a process has just become the owner of.
type TakenLane struct {
	Lane     int
	Epoch    int64
	EndedAgo time.Duration // when the lease before has ended; an hour at most
}

// Fleet is what a process reads when it renews its leases.
type Fleet struct {
	Lanes     [Lanes]Lane
	Processes []Process   // that were seen within the last minute
	Taken     []TakenLane // by this renewal
	Share     int         // how many lanes each process should have at most
}
