package records

import (
	"fmt"
	"iter"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/shopspring/decimal"
)

// firstDay is the first of the days that records are generated for.
var firstDay = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// accounts is the number of accounts that records are generated for.
const accounts = 600

// Generate returns made-up usage records of the built-in tariffs, in the order of their times, spread evenly over days from
// 2026-11-01 on; less than one day is one. The same seed, records and days give the same records on every machine. Some accounts use much, most use little.
// Line is that of the record in the file that [WriteCSV] makes of them. Memory is constant.
func Generate(seed uint64, records, days int) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		days := max(days, 1)
		d := &draws{source: rand.NewPCG(seed, 0x6d696c6c72616365)}
		customers := newCustomers(d)
		line := 1
		for day := range days {
			start := firstDay.AddDate(0, 0, day)
			today := records / days
			if day < records%days {
				today++
			}
			for i := range today {
				line++
				record := customers[d.below(accounts, 3)].use(d)
				record.Line = line
				record.ID = fmt.Sprintf("U%09d", line-1)
				record.Time = start.Add(instant(d, i, today))
				if !yield(record) {
					return
				}
			}
		}
	}
}

// instant returns when in a day the i-th of n records was made, in whole milliseconds.
func instant(d *draws, i, n int) time.Duration {
	const day = 24 * time.Hour / time.Millisecond
	from, to := share(i, n, uint64(day)), share(i+1, n, uint64(day))
	return time.Duration(from+uint64(d.below(int(max(to-from, 1)), 1))) * time.Millisecond
}

// share returns i/n of whole, rounded down.
func share(i, n int, whole uint64) uint64 {
	high, low := bits.Mul64(uint64(i), whole)
	quotient, _ := bits.Div64(high, low, uint64(n))
	return quotient
}

// draws are random numbers that are the same on every machine.
type draws struct{ source *rand.PCG }

// below returns a number from 0 to n-1, the least of as many draws as times says.
func (d *draws) below(n, times int) int {
	least := n - 1
	for range times {
		high, _ := bits.Mul64(d.source.Uint64(), uint64(n))
		least = min(least, int(high))
	}
	return least
}

// pick returns one of the strings.
func (d *draws) pick(of []string) string { return of[d.below(len(of), 1)] }

// customer is an account with the services that it uses.
type customer struct {
	account  string
	services []service
}

// service is a tariff with the quantities that are usual for it, in units of 10^-decimals.
type service struct {
	tariff   string
	most     int
	decimals int32
}

// use returns a record without line, id and time.
func (c *customer) use(d *draws) Record {
	s := c.services[d.below(len(c.services), 1)]
	units, decimals := 1+d.below(s.most, 2), s.decimals
	if d.below(4, 1) == 0 { // a whole number: with many prices its amount is in the middle of two
		units, decimals = 1+units%100, 0
	}
	return Record{Account: c.account, Tariff: s.tariff, Quantity: decimal.New(int64(units), -decimals)}
}

// country is where customers are, with the names that are usual there.
type country struct {
	code     string
	first    []string
	second   []string
	services []service
}

var countries = []country{
	{
		code:   "DE",
		first:  []string{"Müller", "Schmidt", "Nordhafen", "Rheintal", "Lindenhof", "Weber", "Hansen", "Alpenblick", "Becker, Koch", "Elbufer"},
		second: []string{"GmbH", "& Söhne KG", "Logistik AG", "Bäckerei", "Maschinenbau GmbH", "Kliniken", "Hotel", "Stadtwerke"},
		services: []service{
			{"electricity-de", 250_000, 3}, {"electricity-de-night", 90_000, 3}, {"water-de", 9_000, 3},
			{"mobile-data-de", 40_000, 3}, {"calls-de", 120, 0}, {"charging-de", 80_000, 3},
		},
	},
	{
		code:   "GB",
		first:  []string{"Harbour", "Whitfield", "Ashdown", "Kingsway", "Merton", "Thistle", "Oakley", "Fenwick", "Severn", "Pemberton"},
		second: []string{"Ltd", "Bakery Ltd", "Freight plc", "Dental Care", "Foods Ltd", "& Daughters", "Print Works", "School"},
		services: []service{
			{"electricity-uk", 250_000, 3}, {"water-uk", 9_000, 3}, {"charging-uk", 80_000, 3},
		},
	},
	{
		code:   "US",
		first:  []string{"Blue Ridge", "Lakeside", "Pioneer", "Redwood", "Sunset", "Granite", "Cascade", "Liberty", "Prairie", "Bayou"},
		second: []string{"Inc.", "Dairy LLC", "Hardware Co.", "Medical Group", "Trucking LLC", "Brewing Co.", "Labs, Inc.", "Diner"},
		services: []service{
			{"electricity-us", 400_000, 3}, {"mobile-data-us", 60_000, 3}, {"calls-us", 180, 0},
		},
	},
	{
		code:   "CH",
		first:  []string{"Bergkristall", "Zürisee", "Matterhof", "Léman", "Gotthard", "Säntis"},
		second: []string{"AG", "Uhren AG", "Käserei", "Treuhand AG", "Hôtel SA", "Bahnen AG"},
		services: []service{
			{"electricity-ch", 200_000, 3}, {"charging-ch", 80_000, 3},
		},
	},
	{
		code:   "SE",
		first:  []string{"Björkö", "Skärgård", "Norrsken", "Lindström", "Åkerby", "Vättern"},
		second: []string{"AB", "Fisk AB", "Möbler AB", "Snickeri", "Bryggeri AB", "Skola"},
		services: []service{
			{"electricity-se", 300_000, 3}, {"calls-se", 120, 0},
		},
	},
	{
		code:   "JP",
		first:  []string{"Sakura", "Fujimi", "Asahigaoka", "Minato", "Takahashi", "山田", "北海"},
		second: []string{"KK", "Seimitsu KK", "Ryokan", "Shokuhin KK", "商店", "Denki KK"},
		services: []service{
			{"electricity-jp", 200_000, 3}, {"water-jp", 9_000, 3}, {"mobile-data-jp", 40_000, 3},
		},
	},
	{
		code:   "KW",
		first:  []string{"Al Noor", "Salmiya", "Gulf Pearl", "Failaka", "Al Jahra", "Marina"},
		second: []string{"Trading Co.", "Contracting WLL", "Restaurants", "Cold Storage", "Clinics"},
		services: []service{
			{"electricity-kw", 900_000, 3}, {"water-kw", 20_000, 3},
		},
	},
}

// newCustomers returns the accounts that records are generated for. Those that use most come first.
func newCustomers(d *draws) []customer {
	all := make([]customer, accounts)
	for i := range all {
		c := &countries[d.below(len(countries), 2)]
		name := d.pick(c.first) + " " + d.pick(c.second)
		all[i] = customer{
			account:  fmt.Sprintf("%s-%05d %s", c.code, 10_000+i*100+d.below(90, 1), name),
			services: c.services,
		}
	}
	return all
}
