module refunds

go 1.23

require go.temporal.io/sdk v1.37.0
