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
	Below   float64 // of all its descendants, including ended ones
	Machine float64 // all work of all cores since boot
	Self    float64 // this program
}

// Minus returns the usage between two samples.
func (u Usage) Minus(before Usage) Usage {
	return Usage{u.Process - before.Process, u.Below - before.Below, u.Machine - before.Machine, u.Self - before.Self}
}

// Others is the usage of all other programs.
func (u Usage) Others() float64 { return max(u.Machine-u.Process-u.Below-u.Self, 0) }

const ticksPerSecond = 100 // USER_HZ, which is the same on every Linux

// UsageOf reads a process's usage from /proc; ok is false without /proc, or when there is
// no such process.
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
	// The kernel adds the time of an ended process to its parent's time of ended children,
	// so own plus ended time over all living processes is the total.
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

// onCPU is the CPU time of a single-threaded process in seconds; PostgreSQL's processes are
// single-threaded. Ticks are too coarse: they are rounded down per process, so 64 processes
// of 8 ms each would count as 0.
func onCPU(pid int) (float64, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/schedstat") // nanoseconds on the CPU, and others
	if err != nil {
		return 0, false
	}
	first, _, _ := strings.Cut(string(text), " ")
	n, err := strconv.ParseFloat(first, 64)
	return n / 1e9, err == nil && n > 0
}

// processStat is the content of /proc/<pid>/stat (proc_pid_stat(5)).
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

// parseStat parses a line of /proc/<pid>/stat. The second field is a name in parentheses,
// which may itself contain parentheses and spaces.
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

// seconds converts the sum of the ticks.
func seconds(ticks ...string) float64 {
	sum := 0.0
	for _, t := range ticks {
		n, err := strconv.ParseFloat(t, 64)
		if err != nil {
			continue // the kernel only writes numbers
		}
		sum += n
	}
	return sum / ticksPerSecond
}

// machineCPU is the CPU time of all cores since boot, 0 when unknown.
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

// SelfCPU is the CPU time of this program.
func SelfCPU() float64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// MemoryOf is a process's memory, current and maximum since its start, in MiB; ok is false
// without /proc.
func MemoryOf(pid int) (now, most float64, ok bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, 0, false
	}
	return kibibytes(string(text), "VmRSS:") / 1024, kibibytes(string(text), "VmHWM:") / 1024, true
}

// kibibytes parses a line like "VmRSS:   123456 kB", 0 when there is none.
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
