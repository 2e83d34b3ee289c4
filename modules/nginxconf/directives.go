// Copyright 2026 The caddy-upstream Authors
// SPDX-License-Identifier: Apache-2.0

package nginxconf

const inRewrite = inServer | inLocation | inIf

// blockDirectives are those that make blocks, and those of the whole process.
func blockDirectives() map[string][]entry {
	return map[string][]entry{
		"events":   {{in: inMain, block: true, do: (*adapter).events}},
		"http":     {{in: inMain, block: true, do: (*adapter).http}},
		"upstream": {{in: inHTTP | inStream, min: 1, max: 1, block: true, do: (*adapter).upstream}},
		"server": {
			{in: inHTTP, block: true, do: (*adapter).server},
			{in: inStream, block: true, do: (*adapter).streamServer},
			{in: inUpstream | inStreamUpstream, min: 1, max: -1, do: (*adapter).upstreamServer},
		},
		"location":      {{in: inServer | inLocation, min: 1, max: 2, block: true, do: (*adapter).location}},
		"if":            {{in: inServer | inLocation, min: 1, max: -1, block: true, do: (*adapter).ifBlock}},
		"map":           {{in: inHTTP, min: 2, max: 2, block: true, do: (*adapter).mapBlock}},
		"geo":           {{in: inHTTP, min: 1, max: 2, block: true, do: (*adapter).geoBlock}},
		"split_clients": {{in: inHTTP, min: 2, max: 2, block: true, do: (*adapter).splitBlock}},
		"types":         {{in: inAll, block: true, do: (*adapter).typesBlock}},

		"resolver":         {{in: inAll | inUpstream | inStream | inStreamServer | inStreamUpstream, min: 1, max: -1, read: readResolver}},
		"resolver_timeout": {{in: inAll | inUpstream | inStream | inStreamServer | inStreamUpstream, min: 1, max: 1, read: readTime}},
		"include":          {{in: ^context(0), min: 1, max: 1, do: (*adapter).include}},
		"worker_processes": {{in: inMain, min: 1, max: 1, do: (*adapter).workerProcesses}},
	}
}

// upstreamDirectives are those of upstream blocks.
func upstreamDirectives() map[string][]entry {
	return map[string][]entry{
		"least_conn":         {{in: inUpstream | inStreamUpstream, do: (*adapter).leastConn}},
		"ip_hash":            {{in: inUpstream, do: (*adapter).ipHash}},
		"hash":               {{in: inUpstream | inStreamUpstream, min: 1, max: 2, do: (*adapter).hash}},
		"random":             {{in: inUpstream | inStreamUpstream, max: 2, do: (*adapter).random}},
		"least_time":         {{in: inUpstream | inStreamUpstream, min: 1, max: 2, do: (*adapter).leastTime}},
		"sticky":             {{in: inUpstream, min: 1, max: -1, do: (*adapter).sticky}},
		"queue":              {{in: inUpstream, min: 1, max: 2, do: (*adapter).queue}},
		"state":              {{in: inUpstream | inStreamUpstream, min: 1, max: 1, do: (*adapter).state}},
		"keepalive_requests": {{in: inUpstream, min: 1, max: 1, read: readNumber}, {in: inAll, min: 1, max: 1, read: readClientRequests}},
		"keepalive_time":     {{in: inUpstream, min: 1, max: 1, read: readTime}, {in: inAll, min: 1, max: 1, read: readClientTime}},
		"keepalive_timeout":  {{in: inUpstream, min: 1, max: 1, read: readTime}, {in: inHTTP | inServer, min: 1, max: 2, read: readClientTimeout}, {in: inLocation, min: 1, max: 2, read: readLocationTimeout}},
		"keepalive":          {{in: inUpstream, min: 1, max: 2, read: readWords}},
		"zone":               {{in: inUpstream | inStreamUpstream, min: 1, max: 2, read: readWords}},
	}
}

// serverDirectives are those that servers have or hand on.
func serverDirectives() map[string][]entry {
	return map[string][]entry{
		"listen":                      {{in: inServer, min: 1, max: -1, do: (*adapter).listen}},
		"server_name":                 {{in: inServer, min: 1, max: -1, multi: true, read: readServerNames}},
		"http2":                       {{in: inHTTP | inServer, min: 1, max: 1, read: readFlag}},
		"merge_slashes":               {{in: inHTTP | inServer, min: 1, max: 1, read: readFlag}},
		"port_in_redirect":            {{in: inAll, min: 1, max: 1, read: readFlag}},
		"large_client_header_buffers": {{in: inHTTP | inServer, min: 2, max: 2, read: readHeaderBuffers}},
		"ssl_trusted_certificate":     {{in: inHTTP | inServer, min: 1, max: 1, read: readText}},
		"ssl_reject_handshake":        {{in: inHTTP | inServer, min: 1, max: 1, read: readFlag}},
		"absolute_redirect":           {{in: inAll, min: 1, max: 1, read: readFlag}},
		"client_max_body_size":        {{in: inAll, min: 1, max: 1, read: readSize}},
		"client_body_timeout":         {{in: inAll, min: 1, max: 1, read: readTime}},
		"client_header_timeout": {
			{in: inHTTP | inServer, min: 1, max: 1, read: readTime},
		},
		"send_timeout":             {{in: inAll, min: 1, max: 1, read: readTime}},
		"client_body_in_file_only": {{in: inAll, min: 1, max: 1, read: readBodyInFile}},
		"client_body_temp_path":    {{in: inAll, min: 1, max: 4, read: readTempPath}},
		"client_body_buffer_size":  {{in: inAll, min: 1, max: 1, read: readSize}},
		"set_real_ip_from":         {{in: inAll, min: 1, max: 1, multi: true, read: readText}},
		"real_ip_header":           {{in: inAll, min: 1, max: 1, read: readText}},
		"real_ip_recursive":        {{in: inAll, min: 1, max: 1, read: readFlag}},
		"ssl_certificate":          {{in: inHTTP | inServer, min: 1, max: 1, multi: true, read: readText}},
		"ssl_certificate_key":      {{in: inHTTP | inServer, min: 1, max: 1, multi: true, read: readText}},
		"ssl_password_file":        {{in: inHTTP | inServer, min: 1, max: 1, read: readText}},
		"ssl_protocols":            {{in: inHTTP | inServer, min: 1, max: -1, read: readProtocols}},
		"ssl_ciphers":              {{in: inHTTP | inServer, min: 1, max: 1, read: readCiphers}},
		"ssl_crl":                  {{in: inHTTP | inServer, min: 1, max: 1, read: readText}},
		"ssl_client_certificate":   {{in: inHTTP | inServer, min: 1, max: 1, read: readText}},
		"ssl_verify_client":        {{in: inHTTP | inServer, min: 1, max: 1, read: oneOf("on", "off", "optional", "optional_no_ca")}},
	}
}

// locationDirectives are those of files, pages, access and logs.
func locationDirectives() map[string][]entry {
	return map[string][]entry{
		"root":                  {{in: inAll | inIf, min: 1, max: 1, read: readTemplate}},
		"alias":                 {{in: inLocation, min: 1, max: 1, read: readTemplate}},
		"index":                 {{in: inAll, min: 1, max: -1, read: readTemplates}},
		"try_files":             {{in: inServer | inLocation, min: 2, max: -1, read: readTemplates}},
		"default_type":          {{in: inAll, min: 1, max: 1, read: readText}},
		"internal":              {{in: inLocation, read: func(*adapter, *dir) (any, error) { return true, nil }}},
		"allow":                 {{in: inAll, min: 1, max: 1, do: (*adapter).accessRule}},
		"deny":                  {{in: inAll, min: 1, max: 1, do: (*adapter).accessRule}},
		"add_header":            {{in: inAll | inIf, min: 2, max: 3, multi: true, read: readAddHeader}},
		"limit_rate":            {{in: inAll | inIf, min: 1, max: 1, read: readRate}},
		"limit_rate_after":      {{in: inAll | inIf, min: 1, max: 1, read: readRate}},
		"error_page":            {{in: inAll | inIf, min: 2, max: -1, multi: true, read: readErrorPage}},
		"recursive_error_pages": {{in: inAll, min: 1, max: 1, read: readFlag}},
		"access_log":            {{in: inAll | inIf, min: 1, max: -1, multi: true, read: readAccessLog}},
		"log_format":            {{in: inHTTP, min: 2, max: -1, do: (*adapter).logFormat}},
	}
}

// rewriteDirectives are those that run one after the other.
func rewriteDirectives() map[string][]entry {
	return map[string][]entry{
		"return":  {{in: inRewrite, min: 1, max: 2, do: (*adapter).returnRule}},
		"rewrite": {{in: inRewrite, min: 2, max: 3, do: (*adapter).rewriteRule}},
		"set":     {{in: inRewrite, min: 2, max: 2, do: (*adapter).setRule}},
		"break":   {{in: inRewrite, do: (*adapter).breakRule}},
	}
}
