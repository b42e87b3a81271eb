package installation

import (
	"os"
	"strconv"
	"strings"
	"syscall"
)

// Usage is CPU time in seconds.
type Usage struct {
	Process float64 // of one process
	Below   float64 // of all its descendants, those that have ended included
	Machine float64 // all work of all cores since boot
	Self    float64 // this program
}

// Minus is what was used between two looks.
func (u Usage) Minus(before Usage) Usage {
	return Usage{u.Process - before.Process, u.Below - before.Below, u.Machine - before.Machine, u.Self - before.Self}
}

// Others is what neither the process, nor its descendants, nor this program used.
func (u Usage) Others() float64 { return max(u.Machine-u.Process-u.Below-u.Self, 0) }

const ticksPerSecond = 100 // USER_HZ, which is the same on every Linux

// UsageOf reads what a process has used from /proc; ok is false where there is none, or
// the process is not there.
func UsageOf(pid int) (u Usage, ok bool) {
	u.Self = SelfCPU()
	all := processes()
	root, ok := all[pid]
	if !ok {
		return u, false
	}
	u.Process, u.Below, u.Machine = root.own, root.ended, machineCPU()
	children := map[int][]int{}
	for id, p := range all {
		children[p.parent] = append(children[p.parent], id)
	}
	// The parent of a process that ends gets its time as that of an ended child, so own
	// and ended time of all that live is all time there ever was.
	for next := children[pid]; len(next) > 0; next = next[1:] {
		p := all[next[0]]
		u.Below += p.ended
		if precise, ok := onCPU(next[0]); ok {
			u.Below += precise
		} else {
			u.Below += p.own
		}
		next = append(next, children[next[0]]...)
	}
	return u, true
}

// onCPU is what the one thread of a process has used, in seconds; of PostgreSQL's processes
// none has two. Ticks are rounded down for each of them, and where 64 have used 8 ms each,
// nothing is left.
func onCPU(pid int) (float64, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat") // nanoseconds on the CPU, and others
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(string(text), " ")
	n, err := strconv.ParseFloat(first, 64)
	return n / 1e9, err == nil && n > 0
}

// processStat is what /proc/<pid>/stat says (proc_pid_stat(5)).
type processStat struct {
	parent     int
	own, ended float64 // seconds: of the process, and of its children that have ended
}

func processes() map[int]processStat {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	all := map[int]processStat{}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile("/proc/" + entry.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		if p, ok := parseStat(string(text)); ok {
			all[pid] = p
		}
	}
	return all
}

// parseStat reads a line of /proc/<pid>/stat. The second field is a name in parentheses,
// which may hold anything, parentheses and spaces included.
func parseStat(line string) (processStat, bool) {
	const parent, utime, stime, cutime, cstime = 1, 11, 12, 13, 14 // counted after the name
	fields := strings.Fields(line[strings.LastIndexByte(line, ')')+1:])
	if len(fields) <= cstime {
		return processStat{}, false
	}
	id, err := strconv.Atoi(fields[parent])
	if err != nil {
		return processStat{}, false
	}
	return processStat{id, seconds(fields[utime], fields[stime]), seconds(fields[cutime], fields[cstime])}, true
}

// seconds adds up ticks.
func seconds(ticks ...string) float64 {
	sum := 0.0
	for _, t := range ticks {
		n, err := strconv.ParseFloat(t, 64)
		if err != nil {
			continue // a field of the kernel's that is not a number does not exist
		}
		sum += n
	}
	return sum / ticksPerSecond
}

// machineCPU is what all cores have worked since boot, 0 when that is not known.
func machineCPU() float64 {
	const user, system, irq, steal = 0, 2, 5, 7 // proc_stat(5): user nice system idle iowait irq softirq steal
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	fields := strings.Fields(line)
	if len(fields) <= steal+1 {
		return 0
	}
	fields = fields[1:]
	return seconds(fields[user:system+1]...) + seconds(fields[irq:steal]...)
}

// SelfCPU is what this program has used.
func SelfCPU() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// MemoryOf is what a process has in memory, now and at most since its start, in MiB; ok is
// false where there is no /proc.
func MemoryOf(pid int) (now, most float64, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0, false
	}
	return kibibytes(string(text), "VmRSS:") / 1024, kibibytes(string(text), "VmHWM:") / 1024, true
}

// kibibytes reads a line like "VmRSS:   123456 kB", 0 when there is none.
func kibibytes(text, name string) float64 {
	_, rest, _ := strings.Cut(text, name)
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	n, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return 0
	}
	return n
}
