# What examples/policies says of reading and answering, for OPA.
package orga

default decision := {"decision": "deny", "reason": "nothing allows it"}

decision := {"decision": "allow", "policies": ["reading"]} if {
	input.action == "tool_call"
	input.tool.effect == "read_only"
}

decision := {"decision": "allow", "policies": ["answering"]} if input.action == "respond"
