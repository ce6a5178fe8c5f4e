// Package agentfile reads the file that says what a scaling agent scales: pools with their queues, their policies, and the
// processes, container apps or scale sets that work for them. The command millrace agent reads it, and so does the scaler for KEDA.
//
// The file is YAML:
//
//	interval: 10s
//	folder: /var/lib/millrace
//	price:
//	  instance_hour: 0.05
//	  transactions: 0.004
//	accounts:
//	  east: {environment: AZURE_STORAGE_EAST}
//	pools:
//	  orders:
//	    queues: [orders-0, east/orders-1]
//	    beacons: [orders-control]
//	    policy:
//	      max: 10
//	      target: 2m
//	    processes:
//	      command: [./worker, -queue, orders]
//	      environment: {LEVEL: info}
//	      grace: 30s
//	      log: orders.log
//	  emails:
//	    queues: [emails]
//	    azure: /subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/shop/providers/Microsoft.App/containerApps/emails
//
// Only pools with queues are required. Zero values of what is read mean the defaults of packages agent, scaling and
// scaling/agent/processes, which the file does not repeat.
//
// # Secrets
//
// The file holds none. An account is the name of an environment variable with its location, of a file with it, or an address
// without a signature. A file in which something looks like a key or a signature is refused, and errors do not repeat it.
//
// # Errors
//
// [Parse] and [Read] report everything that is wrong at once, in the order of the lines, each with the line and with what is
// allowed. Unknown keys are errors, and those that are close to a known one name it.
//
// # YAML
//
// The file is one document of at most [MaxSize] bytes. Anchors, aliases and merge keys are refused. A duration has a unit,
// such as 90s or 1m30s. A relative path is relative to the folder of the file, not to where the program was started.
//
// # Concurrency
//
// All functions are safe for concurrent use. Read opens a file; [File.Open] opens files with locations, and sends no request.
package agentfile
