package fleet

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"net"
	"net/rpc"
	"time"

	"github.com/everpost/everpost/internal/admission"
	"github.com/everpost/everpost/internal/webhook"
)

// What processes ask each other, by net/rpc over TLS.
const (
	serviceName    = "Fleet"
	methodAcquire  = serviceName + ".Acquire"
	methodEnd      = serviceName + ".End"
	methodForget   = serviceName + ".Forget"
	methodForward  = serviceName + ".Forward"
	methodTransfer = serviceName + ".Transfer"
	methodHealth   = serviceName + ".Health"
	methodPing     = serviceName + ".Ping"

	handshakeTimeout = 5 * time.Second
)

// AcquireArgs asks for a permit. Number is the asking process's for it.
type AcquireArgs struct {
	Number  uint64
	Request admission.Request
}

// AcquireReply is a permit, a wait or a hold, as an admission.Decision.
type AcquireReply struct {
	NotOwner  bool // ask another process
	Permitted bool
	Timeout   time.Duration // of the request
	Epoch     int64         // of the owner
	Wait      time.Duration
	Reason    string
	Forecast  Forecast
}

// EndArgs ends a permit.
type EndArgs struct {
	Number   uint64
	Endpoint webhook.EndpointID
	Sent     bool
	Result   admission.Result // of the request, if Sent
}

// EndReply answers EndArgs.
type EndReply struct {
	NotOwner bool
	Forecast Forecast
}

// ForgetArgs gives back a reservation.
type ForgetArgs struct {
	Endpoint webhook.EndpointID
	Delivery webhook.DeliveryID
}

// HealthArgs asks for the health of an endpoint.
type HealthArgs struct{ Endpoint webhook.EndpointID }

// HealthReply answers HealthArgs.
type HealthReply struct {
	NotOwner bool
	Observed webhook.Observation
}

// TransferArgs asks for what a process has under way in some lanes, and for their states if it was their owner. The epochs are those of the
// process that asks, which is their new owner.
type TransferArgs struct{ Lanes map[int]int64 }

// Starts starts deliveries that another process has forwarded.
type Starts interface {
	// Forwarded returns those that it does not start, and whether it will start none any more, because it stops.
	Forwarded(event webhook.Accepted) (refused []webhook.DeliveryID, stops bool)
}

// Server is what other processes ask. It ends with its Fleet.
type Server struct {
	fleet     *Fleet
	health    func(webhook.EndpointID) webhook.Observation
	starts    Starts
	strangers strangers
}

// NewServer makes the server of a process that may own lanes. health is what its controller observes of an endpoint, with times of the database's
// clock.
func NewServer(f *Fleet, health func(webhook.EndpointID) webhook.Observation, starts Starts) *Server {
	return &Server{fleet: f, health: health, starts: starts}
}

// Start listens to the other processes, before the Fleet is started.
func (s *Server) Start() { s.fleet.work.Go(s.accept) }

// accept serves other processes until the listener is closed.
func (s *Server) accept() {
	f, config := s.fleet, s.tls()
	for {
		conn, err := f.listener.Accept()
		switch {
		case err == nil:
			leave, ok := s.strangers.admit(conn)
			if !ok {
				_ = conn.Close()
				continue
			}
			f.work.Go(func() {
				defer leave()
				s.serve(conn, config, leave)
			})
		case errors.Is(err, net.ErrClosed):
			return
		default:
			f.log.WarnContext(f.life, "a process could not be accepted", "error", err)
			if !pause(f.life, retryPause) {
				return
			}
		}
	}
}

// serve serves one connection until it ends. It calls authenticated when the other side is.
func (s *Server) serve(raw net.Conn, config *tls.Config, authenticated func()) {
	f := s.fleet
	ctx, cancel := context.WithCancel(f.life)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = raw.Close() })
	defer stop()
	conn := tls.Server(raw, config)
	defer func() { _ = conn.Close() }()
	within, end := context.WithTimeout(ctx, handshakeTimeout)
	defer end()
	if err := conn.HandshakeContext(within); err != nil {
		return // the other side gets the error, too
	}
	id, ownsLanes, known := s.processOf(conn.ConnectionState())
	if !known {
		return
	}
	authenticated()
	var methods any = &apiService{s}
	if ownsLanes {
		methods = &service{apiService{s}, ctx, id}
	}
	server := rpc.NewServer()
	if err := server.RegisterName(serviceName, methods); err != nil {
		f.log.ErrorContext(ctx, "other processes cannot be served", "error", err)
		return
	}
	server.ServeConn(watchedConn{timedConn{conn}, cancel}) // net/rpc waits for the calls under way, which cancel ends
	grants{f}.loseGrantsOf(id)
}

// tls admits the processes in the database.
func (s *Server) tls() *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{s.fleet.identity},
		ClientAuth:   tls.RequireAnyClientCert,
		VerifyConnection: func(state tls.ConnectionState) error {
			if _, _, known := s.processOf(state); !known {
				s.fleet.renewSoon() // it may be new
				return errUnknownProcess
			}
			return nil
		},
	}
}

// processOf is the process with which a connection is, and whether it may own lanes.
func (s *Server) processOf(state tls.ConnectionState) (id string, ownsLanes, known bool) {
	f, hash := s.fleet, sha256.Sum256(state.PeerCertificates[0].Raw)
	if hash == f.self.Certificate {
		return f.self.ID, true, true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, p := range f.peers {
		if p.process.Certificate == hash {
			return id, true, true
		}
	}
	id, known = f.callers[hash]
	return id, false, known
}

// apiService is what every process may call: an API takes no lanes, and needs no permits.
type apiService struct{ server *Server }

// Ping answers.
func (s *apiService) Ping(struct{}, *struct{}) error { return nil }

// Health says how an endpoint fares.
func (s *apiService) Health(args *HealthArgs, reply *HealthReply) error {
	if _, own := s.server.fleet.owner(args.Endpoint); !own {
		reply.NotOwner = true
		return nil
	}
	reply.Observed = s.server.health(args.Endpoint)
	return nil
}

// service is what a process that may own lanes may call.
type service struct {
	apiService

	ctx     context.Context //nolint:containedctx // of the connection: net/rpc has none for a call
	process string
}

// Acquire asks for a permit.
func (s *service) Acquire(args *AcquireArgs, reply *AcquireReply) error {
	f, r := s.server.fleet, args.Request
	decision, epoch, ok := f.decide(s.ctx, r, false)
	if !ok {
		reply.NotOwner = true
		return nil
	}
	reply.Forecast = s.server.forecast(r.Endpoint)
	if decision.Permit == nil {
		reply.Wait, reply.Reason = decision.Wait, decision.Reason
		return nil
	}
	if !(grants{f}).grant(grantID{s.process, args.Number}, r.Endpoint, epoch, decision.Permit) {
		decision.Permit.Cancel()
		reply.NotOwner = true
		return nil
	}
	reply.Permitted, reply.Timeout, reply.Epoch = true, decision.Permit.Timeout(), epoch
	return nil
}

// End ends a permit.
func (s *service) End(args *EndArgs, reply *EndReply) error {
	f := s.server.fleet
	if _, own := f.owner(args.Endpoint); !own {
		reply.NotOwner = true
		return nil
	}
	var result *admission.Result
	if args.Sent {
		result = &args.Result
	}
	grants{f}.endGrant(grantID{s.process, args.Number}, webhook.LaneOf(args.Endpoint), result)
	reply.Forecast = s.server.forecast(args.Endpoint)
	return nil
}

// Forget gives back a reservation.
func (s *service) Forget(args *ForgetArgs, _ *struct{}) error {
	s.server.fleet.controller.Forget(args.Endpoint, args.Delivery)
	return nil
}

// Transfer transfers lanes that the other process has taken: it lists what this process has under way in them.
func (s *service) Transfer(args *TransferArgs, reply *LaneTransfer) error {
	*reply = transfers{s.server.fleet}.transferLanes(args.Lanes, s.process)
	return nil
}

// forecast is that of an endpoint in a lane of this process.
func (s *Server) forecast(id webhook.EndpointID) Forecast {
	known := s.fleet.controller.Forecast(id)
	return Forecast{Wait: known.Wait, Unhealthy: known.Unhealthy, Slow: s.fleet.controller.LikelySlow(id)}
}
