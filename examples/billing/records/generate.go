package records

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/shopspring/decimal"
)

// FirstDay is the first day of generated records.
var FirstDay = time.Date(2026, time.November, 1, 0, 0, 0, 0, time.UTC)

// accounts is the number of accounts of generated records.
const accounts = 600

// Generate returns made-up usage records of the built-in tariffs, in the order of their times, spread evenly over days
// from [FirstDay] on; less than one day is one. The same seed, records and days give the same records on every
// machine. Some accounts use much, most use little. Line is the record's line in a file of all
// of them. Memory is constant.
func Generate(seed uint64, records, days int) iter.Seq[Record] {
	return func(yield func(Record) bool) {
		days := max(days, 1)
		d := &draws{rand.New(rand.NewPCG(seed, 0x6d696c6c72616365))}
		customers := newCustomers(d)
		line := 1
		for day := range days {
			today := records / days
			if day < records%days {
				today++
			}
			for i := range today {
				line++
				record := customers[d.least(accounts, 3)].use(d)
				record.Line = line
				record.ID = fmt.Sprintf("U%d-%09d", seed, line-1)
				slot := 24 * time.Hour / time.Duration(today)
				at := time.Duration(i)*slot + time.Duration(d.Int64N(int64(slot)))
				record.Time = FirstDay.AddDate(0, 0, day).Add(at.Truncate(time.Millisecond))
				if !yield(record) {
					return
				}
			}
		}
	}
}

// draws are random numbers that are the same on every machine.
type draws struct{ *rand.Rand }

// least returns the least of so many numbers from 0 to n-1.
func (d *draws) least(n, times int) int {
	least := n - 1
	for range times {
		least = min(least, d.IntN(n))
	}
	return least
}

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
	s := c.services[d.IntN(len(c.services))]
	units, decimals := 1+d.least(s.most, 2), s.decimals
	if d.IntN(4) == 0 { // a whole number: with many prices its amount is in the middle of two
		units, decimals = 1+units%100, 0
	}
	return Record{Account: c.account, Tariff: s.tariff, Quantity: decimal.New(int64(units), -decimals)}
}

// countries are where customers are, with the names and the services that are usual there.
var countries = []struct {
	code     string
	names    []string
	services []service
}{
	{"DE", []string{"Müller GmbH", "Schmidt & Söhne KG", "Nordhafen Logistik AG", "Lindenhof Bäckerei", "Alpenblick Hotel", "Becker, Koch Kliniken", "Elbufer Stadtwerke"},
		[]service{{"electricity-de", 250_000, 3}, {"electricity-de-night", 90_000, 3}, {"water-de", 9_000, 3},
			{"mobile-data-de", 40_000, 3}, {"calls-de", 120, 0}, {"charging-de", 80_000, 3}}},
	{"GB", []string{"Harbour Ltd", "Whitfield Bakery Ltd", "Ashdown Freight plc", "Merton Dental Care", "Fenwick & Daughters", "Severn Print Works"},
		[]service{{"electricity-uk", 250_000, 3}, {"water-uk", 9_000, 3}, {"charging-uk", 80_000, 3}}},
	{"US", []string{"Blue Ridge Inc.", "Lakeside Dairy LLC", "Pioneer Hardware Co.", "Redwood Medical Group", "Cascade Labs, Inc.", "Bayou Diner"},
		[]service{{"electricity-us", 400_000, 3}, {"mobile-data-us", 60_000, 3}, {"calls-us", 180, 0}}},
	{"CH", []string{"Bergkristall AG", "Zürisee Uhren AG", "Matterhof Käserei", "Léman Hôtel SA", "Säntis Bahnen AG"},
		[]service{{"electricity-ch", 200_000, 3}, {"charging-ch", 80_000, 3}}},
	{"SE", []string{"Björkö AB", "Skärgård Fisk AB", "Norrsken Möbler AB", "Åkerby Skola"},
		[]service{{"electricity-se", 300_000, 3}, {"calls-se", 120, 0}}},
	{"JP", []string{"Sakura KK", "Fujimi Seimitsu KK", "Minato Ryokan", "山田商店", "北海 Denki KK"},
		[]service{{"electricity-jp", 200_000, 3}, {"water-jp", 9_000, 3}, {"mobile-data-jp", 40_000, 3}}},
	{"KW", []string{"Al Noor Clinics", "Salmiya Trading Co.", "Gulf Pearl Restaurants", "Marina Cold Storage"},
		[]service{{"electricity-kw", 900_000, 3}, {"water-kw", 20_000, 3}}},
}

// newCustomers returns the accounts of generated records. The largest come first.
func newCustomers(d *draws) []customer {
	all := make([]customer, accounts)
	for i := range all {
		c := &countries[d.least(len(countries), 2)]
		all[i] = customer{fmt.Sprintf("%s-%05d %s", c.code, 10_000+i*100+d.IntN(90), c.names[d.IntN(len(c.names))]), c.services}
	}
	return all
}
