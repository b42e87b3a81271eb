package egress

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/dns/dnsmessage"
)

// nameServer is a name server in the test.
type nameServer struct {
	addr string

	mu    sync.Mutex
	asked []string // "A name." or "AAAA name.", in order
}

// nameAnswer is a name server's answer to one question. Addresses of the other family are
// left out.
type nameAnswer struct {
	addrs  []netip.Addr
	code   dnsmessage.RCode
	silent bool // no answer at all
}

// newNameServer answers on a UDP address; port 0 is a free one.
func newNameServer(t testing.TB, addr string, answer func(question dnsmessage.Question) nameAnswer) *nameServer {
	t.Helper()
	socket, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	require.NoError(t, err)
	s := &nameServer{addr: socket.LocalAddr().String()}
	var serving sync.WaitGroup
	serving.Go(func() { s.serve(socket, answer) })
	t.Cleanup(func() {
		socket.Close()
		serving.Wait()
	})
	return s
}

func (s *nameServer) serve(socket *net.UDPConn, answer func(dnsmessage.Question) nameAnswer) {
	buf := make([]byte, 1500)
	for {
		n, from, err := socket.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		var msg dnsmessage.Message
		if msg.Unpack(buf[:n]) != nil || len(msg.Questions) != 1 {
			continue
		}
		question := msg.Questions[0]
		s.mu.Lock()
		s.asked = append(s.asked, question.Type.String()[len("Type"):]+" "+question.Name.String())
		s.mu.Unlock()
		said := answer(question)
		if said.silent {
			continue
		}
		reply := dnsmessage.Message{
			Header:    dnsmessage.Header{ID: msg.ID, Response: true, RecursionAvailable: true, RecursionDesired: true, RCode: said.code},
			Questions: msg.Questions, Answers: records(question, said.addrs),
		}
		if packed, err := reply.Pack(); err == nil {
			_, _ = socket.WriteToUDPAddrPort(packed, from)
		}
	}
}

// questions returns what was asked so far, sorted.
func (s *nameServer) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.asked))
}

// resolver asks the name server in place of those of the system.
func (s *nameServer) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return dialNameServer(ctx, "udp4", s.addr)
	}}
}

// resolver queries a name server in the test. answer gets each question and returns the
// addresses or a code; nil addresses with success mean no response to a question for IPv4.
// number counts the questions for IPv4 from 1; it is 0 for IPv6.
func resolver(t testing.TB, answer func(name string, number int) ([]netip.Addr, dnsmessage.RCode)) *net.Resolver {
	t.Helper()
	asked := 0
	return newNameServer(t, "127.0.0.1:0", func(question dnsmessage.Question) nameAnswer {
		number := 0
		if question.Type == dnsmessage.TypeA {
			asked++
			number = asked
		}
		addrs, code := answer(question.Name.String(), number)
		return nameAnswer{addrs, code, number > 0 && addrs == nil && code == dnsmessage.RCodeSuccess}
	}).resolver()
}

// records returns the addresses of the question's type.
func records(question dnsmessage.Question, addrs []netip.Addr) []dnsmessage.Resource {
	var all []dnsmessage.Resource
	for _, addr := range addrs {
		var body dnsmessage.ResourceBody = &dnsmessage.AAAAResource{AAAA: addr.As16()}
		if addr.Is4() {
			body = &dnsmessage.AResource{A: addr.As4()}
		}
		if addr.Is4() == (question.Type == dnsmessage.TypeA) {
			all = append(all, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: dnsmessage.ClassINET}, Body: body,
			})
		}
	}
	return all
}
