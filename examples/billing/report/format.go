package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// grouped puts a comma after each three digits of a number before its point.
func grouped(number string) string {
	whole, fraction, point := strings.Cut(number, ".")
	sign := ""
	if strings.HasPrefix(whole, "-") {
		sign, whole = "-", whole[1:]
	}
	var b strings.Builder
	for n, digit := range whole {
		if n > 0 && (len(whole)-n)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(digit)
	}
	if point {
		b.WriteString("." + fraction)
	}
	return sign + b.String()
}

func count(n int64) string { return grouped(strconv.FormatInt(n, 10)) }

// plural is a number of things.
func plural(n int64, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + several
}

// short is a number of at most three digits, or a whole one.
func short(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v >= 100 || v == math.Trunc(v):
		return grouped(strconv.FormatFloat(v, 'f', 0, 64))
	default:
		return strconv.FormatFloat(v, 'g', 3, 64)
	}
}

// duration is a duration for people: 350 ms, 4.21 s, 2 min 5 s, 3 h 20 min.
func duration(d time.Duration) string {
	switch {
	case d < 0:
		return "−" + duration(-d)
	case d == 0:
		return "0 s"
	case d < time.Second:
		return strconv.FormatFloat(float64(d)/float64(time.Millisecond), 'g', 3, 64) + " ms"
	case d.Round(10*time.Millisecond) < time.Minute:
		return strconv.FormatFloat(d.Seconds(), 'g', 3, 64) + " s"
	case d.Round(time.Second) < time.Hour:
		return two(d.Round(time.Second), time.Minute, "min", time.Second, "s")
	case d.Round(time.Minute) < 24*time.Hour:
		return two(d.Round(time.Minute), time.Hour, "h", time.Minute, "min")
	default:
		return two(d.Round(time.Hour), 24*time.Hour, "d", time.Hour, "h")
	}
}

// unbroken keeps a number and its unit on one line.
func unbroken(text string) string { return strings.ReplaceAll(text, " ", "\u00a0") }

func two(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

func seconds(v float64) string { return duration(time.Duration(v * float64(time.Second))) }

// dollars has cents from a dollar on, and below it enough digits to see something.
func dollars(v float64) string {
	switch {
	case v == 0:
		return "$0"
	case v >= 1:
		return "$" + grouped(strconv.FormatFloat(v, 'f', 2, 64))
	case v >= 0.001:
		return "$" + strconv.FormatFloat(v, 'f', 4, 64)
	default:
		return "$" + strconv.FormatFloat(v, 'f', 6, 64)
	}
}

func moment(t time.Time) string { return t.UTC().Format("2 January 2006, 15:04:05 UTC") }
