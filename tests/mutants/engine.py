"""Bugs of calls, and of the local engine: what it takes and AWS refuses, or the other way round."""

from tests.mutants.mutant import Mutant

_REFUSALS = "tests/unit/local/test_refusals.py"
_SEVERAL = "tests/unit/local/test_several_attributes.py"
_FREQUENT = "tests/unit/test_frequent_calls.py"
_EXCHANGES = "tests/integration/test_exchanges.py"
_CONDITIONS = "tests/unit/local/test_expressions_conditions.py"
_TRANSACTIONS = "tests/unit/local/test_transactions.py"
_BATCHES = "tests/unit/local/test_batches.py"

MUTANTS = (
    Mutant(
        "calls-signed-with-yesterdays-key",
        "model/sdk/signature.py",
        "if self._secret != (secret, scope):",
        "if self._secret[0] != secret:",
        "a process that runs past midnight is refused",
        test=f"{_FREQUENT}::test_a_signer_follows_credentials_and_days",
    ),
    Mutant(
        "calls-damaged-replies-accepted",
        "model/sdk/frequent_calls.py",
        "    return right and response.status_code < 300",
        "    return response.status_code < 300",
        "bytes that changed on their way are taken for an item",
        test=f"{_FREQUENT}::test_a_reply_that_was_damaged_on_its_way_is_asked_for_again",
    ),
    Mutant(
        "exchanges-left-connections-used-again",
        "model/sdk/exchanges.py",
        """        except BaseException as error:
            connection.close()
""",
        """        except BaseException as error:
            connection.release()
""",
        "the reply to a call that was cancelled is taken for that of the next one",
        test=f"{_EXCHANGES}::test_a_connection_is_used_again_and_one_that_was_left_is_not",
    ),
    Mutant(
        "exchanges-wait-for-ever",
        "model/sdk/exchanges.py",
        "            protocol.start_timeout()\n",
        "",
        "a server that says nothing holds a worker for ever",
        test=f"{_EXCHANGES}::test_a_reply_means_the_same_on_both_ways[silence]",
    ),
    Mutant(
        "exchanges-proxies-passed-by",
        "model/sdk/sessions.py",
        "        if self._proxy_config.proxy_url_for(url):\n            return None\n",
        "",
        "calls go past the proxy that the network asks for",
        test=f"{_EXCHANGES}::test_a_proxy_is_asked_and_a_host_without_one_is_not",
    ),
    Mutant(
        "exchanges-any-certificate-will-do",
        "model/sdk/sessions.py",
        "    context.check_hostname = True\n",
        "",
        "a certificate of another host is accepted",
        test=f"{_EXCHANGES}::test_a_certificate_is_accepted_only_of_its_host",
    ),
    Mutant(
        "exchanges-headers-of-two-lines",
        "model/sdk/exchanges.py",
        """    if text.count("\\n") != len(lines) or text.count("\\r") != len(lines):
        return None
""",
        "",
        "a line break in a token adds a header of its own",
        test=f"{_EXCHANGES}::test_what_is_no_plain_request_goes_the_ordinary_way",
    ),
    Mutant(
        "shortcut-retry-with-another-token",
        "local/shortcut.py",
        "sent, params = sent | tokens, params | tokens",
        "sent = sent | tokens",
        "a transaction whose first reply was lost is applied by its retry, too",
        test="tests/unit/local/test_shortcut.py::test_a_retry_sends_the_token_that_was_made_up_for_the_first_attempt",
    ),
    Mutant(
        "engine-names-in-maps-unchecked",
        "local/attributes.py",
        """    _check_depth(raw, depth)
    check_names(raw)
""",
        """    _check_depth(raw, depth)
""",
        "a map may hold an attribute without a name",
        test=f"{_REFUSALS}::test_an_attribute_has_a_name_of_1_to_65535_bytes",
    ),
    Mutant(
        "engine-index-keys-unbounded",
        "local/indexes.py",
        """        if long:
            self.keys.check_sizes(item)
""",
        "",
        "an item is stored whose key of an index AWS refuses as too long",
        test=f"{_REFUSALS}::test_a_key_of_an_index_is_no_longer_than_a_key_of_a_table",
    ),
    Mutant(
        "engine-backfill-takes-long-keys",
        "local/schema.py",
        "return not (long and self._size_complaint(item))",
        "return True",
        "a new index holds items whose keys are too long for it",
        test=f"{_REFUSALS}::test_a_new_index_leaves_out_items_whose_keys_are_too_long_for_it",
    ),
    Mutant(
        "engine-sort-attributes-with-gaps",
        "local/expressions/keys.py",
        "if name in comparisons and gaps:",
        "if False:",
        "a query of several sort attributes leaves one out, which AWS refuses",
        test=f"{_SEVERAL}::test_a_query_with_a_gap_is_refused",
    ),
    Mutant(
        "engine-partition-attributes-joined",
        "local/schema.py",
        'return raw[0] if len(raw) == 1 else "".join(f"{len(one)}:{one}" for one in raw)',
        'return "".join(raw)',
        "two values of a partition key with several attributes are one when they read the same",
        test=f"{_SEVERAL}::test_a_query_gives_the_partition_key_and_sort_attributes_from_the_left",
    ),
    Mutant(
        "engine-batches-without-partitions",
        "local/batches.py",
        "        if of_partition > _PARTITION_BYTES:",
        "        if of_partition > _REPLY_BYTES:",
        "a program that ignores unprocessed keys reads all items here, and loses some on AWS",
        test=f"{_BATCHES}::test_more_than_1_mb_of_a_partition_leaves_unprocessed_keys",
    ),
    Mutant(
        "engine-batches-in-order",
        "local/batches.py",
        "        wanted = sorted(zip(keys, places, strict=True), key=_meaningless)",
        "        wanted = list(zip(keys, places, strict=True))",
        "a program that pairs keys and items by place is right here, and wrong on AWS",
        test=f"{_BATCHES}::test_items_of_a_batch_do_not_come_in_the_order_asked_for",
    ),
    Mutant(
        "engine-local-entries-weigh-nothing",
        "local/writes.py",
        "        stored += table.indexes[name].entry_size((item, size))",
        "        stored += 0",
        "an item of 300 KB is stored beside a local index that shows all of it; AWS refuses it",
        test="tests/unit/local/test_items.py::"
        "test_an_item_and_its_entries_in_local_indexes_have_400_kb_together",
    ),
    Mutant(
        "engine-expiry-switched-at-will",
        "local/ttl.py",
        "    if now < table.ttl_changed + _SETTLES:",
        "    if now < table.ttl_changed:",
        "a program turns time to live off just after it was turned on, which AWS refuses",
        test="tests/unit/local/test_ttl.py::test_it_is_changed_once_an_hour",
    ),
    Mutant(
        "engine-throttles-in-another-name",
        "local/limits.py",
        'return ApiError("ThrottlingException", f"Rate exceeded for stream {stream_arn}")',
        'return ApiError("LimitExceededException", f"Rate exceeded for stream {stream_arn}")',
        "a program that waits at LimitExceededException alone ends at a throttled DescribeStream",
        test="tests/unit/local/test_limits.py::test_a_stream_is_described_ten_times_in_any_second",
    ),
    Mutant(
        "engine-creating-index-is-read",
        "local/pages.py",
        "if table.creating(index):",
        "if False:",
        "an index that is being created can be read before it is complete",
        test="tests/unit/local/test_redefinitions.py::"
        "test_a_new_index_is_creating_until_it_can_be_read",
    ),
    Mutant(
        "engine-table-busy-with-its-index",
        "local/descriptions.py",
        '        "TableStatus": status,',
        '        "TableStatus": "UPDATING" if is_busy(table) else status,',
        "a program waits until the table is ACTIVE and reads a new index: too early on AWS",
        test="tests/unit/local/test_redefinitions.py::"
        "test_a_table_is_active_while_an_index_is_filled_and_cannot_be_deleted",
    ),
    Mutant(
        "engine-equal-keys-in-order",
        "local/indexes.py",
        "        return hash_value, (*entry, scattered, *table_place[1], table_place[0])",
        "        return hash_value, (*entry, *table_place[1], table_place[0])",
        "a program takes equal keys of an index to be in the order of the table's key",
        test="tests/unit/local/test_queries.py::test_equal_keys_of_an_index_are_in_no_order",
    ),
    Mutant(
        "engine-updates-look-into-keys",
        "local/writes.py",
        """            table.check_paths(self.update)
""",
        "",
        "an update leads into a key of an index, which AWS refuses also where nothing is there",
        test="tests/unit/local/test_items.py::test_an_update_does_not_look_into_a_key_of_an_index",
    ),
    Mutant(
        "engine-and-is-no-operator",
        "local/expressions/condition_parser.py",
        """        self.advance()
        self.count_operator()
        if keyword == "OR":""",
        """        self.advance()
        if keyword == "OR":""",
        "a condition may have 300 comparisons, with AND between them",
        test=f"{_REFUSALS}::test_and_or_and_not_are_operators",
    ),
    Mutant(
        "engine-list-append-nests",
        "local/expressions/updates.py",
        """        if any(isinstance(one, ListAppend) for one in arguments):
            self.misused("list_append")
""",
        "",
        "list_append takes what list_append returns",
        test=f"{_REFUSALS}::test_list_append_does_not_nest",
    ),
    Mutant(
        "engine-attributes-redefined",
        "local/index_updates.py",
        """    _check_not_redefined(table, elements, types)
""",
        "",
        "a new index gives an attribute another type than the key of an older one",
        test="tests/unit/local/test_redefinitions.py::test_an_attribute_in_use_keeps_its_type",
    ),
    Mutant(
        "engine-two-indexes-at-once",
        "local/index_updates.py",
        "if len(online) > 1 or (busy",
        "if len(online) > 9 or (busy",
        "one update of a table makes an index and deletes another",
        test="tests/unit/local/test_redefinitions.py::test_one_index_comes_or_goes_at_a_time",
    ),
    Mutant(
        "engine-restarts-a-query-of-one-row",
        "local/queries.py",
        "    if reading.index is None and (keys.range_name is None or wanted.exact):",
        "    if reading.index is None and wanted.exact:",
        "a query of a table without a sort key goes on behind its only row",
        test=f"{_REFUSALS}::test_a_query_of_a_table_without_a_sort_key_cannot_be_restarted",
    ),
    Mutant(
        "engine-iterator-ignores-its-number",
        "local/iterators.py",
        "        if payload.get(name) is not None and kind not in kinds:",
        "        if payload.get(name) == kind and kind not in kinds:",
        "an iterator of type TRIM_HORIZON takes a sequence number and does not say it is lost",
        test=f"{_REFUSALS}::test_only_an_iterator_at_a_sequence_number_has_one",
    ),
    Mutant(
        "engine-tags-of-any-characters",
        "local/tags.py",
        'return all(one in _SIGNS or category(one)[0] in "LNZ" for one in given)',
        'return all(one in _SIGNS or category(one)[0] != "C" for one in given)',
        "tags have characters that AWS does not take",
        test=f"{_REFUSALS}::test_a_tag_has_letters_digits_spaces_and_a_few_signs",
    ),
    Mutant(
        "engine-reads-look-into-keys",
        "local/pages.py",
        """    table.check_paths(condition)
""",
        "",
        "a filter looks into a key of an index, in which there is nothing",
        test=f"{_REFUSALS}::test_an_expression_of_a_read_does_not_look_into_a_key",
    ),
    Mutant(
        "engine-one-name-space",
        "local/engine.py",
        "        place = (account or self.account, region or self.region)",
        "        place = (self.account, self.region)",
        "tables of two Regions are the same table",
        test="tests/unit/local/test_regions.py::test_a_table_is_of_one_region_of_one_account",
    ),
    Mutant(
        "engine-null-does-not-exist",
        "local/expressions/functions.py",
        "        return (self.operands[0].read(item, values) is not None) is self._when_there",
        """        value = self.operands[0].read(item, values)
        return (value is not None and "NULL" not in value) is self._when_there""",
        "attribute_not_exists holds for an attribute that is there, and is NULL",
        test=f"{_CONDITIONS}::test_a_condition_that_holds",
    ),
    Mutant(
        "engine-absent-values-are-equal",
        "local/expressions/predicates.py",
        "same = left is not None and right is not None and equal(left, right)",
        "same = left == right or (left is not None and right is not None and equal(left, right))",
        "a condition that two paths are equal holds for an item that has neither",
        test=f"{_CONDITIONS}::test_a_condition_that_does_not_hold",
    ),
    Mutant(
        "engine-numbers-and-texts-have-an-order",
        "local/expressions/predicates.py",
        "        return order is not None and self._accepts(order)",
        "        return self._accepts(order or 0)",
        "a number is at least, and at most, any text",
        test=f"{_CONDITIONS}::test_a_condition_that_does_not_hold",
    ),
    Mutant(
        "engine-types-by-their-first-letter",
        "local/expressions/functions.py",
        'wanted["S"] in value',
        'next(iter(value)).startswith(wanted["S"])',
        "attribute_type takes a set of strings for a string",
        test=f"{_CONDITIONS}::test_a_condition_that_does_not_hold",
    ),
    Mutant(
        "engine-null-is-overwritten",
        "local/expressions/assignments.py",
        "if value is None else value",
        'if not value or "NULL" in value else value',
        "if_not_exists replaces an attribute that is there, and is NULL",
        test="tests/unit/local/test_expressions_updates.py::test_an_update_gives_a_new_item",
    ),
    Mutant(
        "engine-limits-count-matches",
        "local/pages.py",
        "        if scanned == reading.limit:",
        "        if matched == reading.limit:",
        "a program takes an empty page for the end, which it never sees here",
        test="tests/unit/local/test_queries.py::test_a_limit_counts_items_before_the_filter",
    ),
    Mutant(
        "engine-filters-see-what-an-index-lacks",
        "local/pages.py",
        "if condition is None or condition.matches(item):",
        "if condition is None or condition.matches(row[0]):",
        "a filter of a global index finds items here, and none on AWS",
        test="tests/unit/local/test_queries.py::test_a_global_index_gives_only_what_it_has",
    ),
    Mutant(
        "engine-tokens-for-any-request",
        "local/transactions.py",
        "        digest = digest_of(actions)\n",
        "        digest = digest_of(len(actions))\n",
        "another transaction with a token that was used is taken for done",
        test=f"{_TRANSACTIONS}::test_a_token_carries_out_a_transaction_once_in_ten_minutes",
    ),
    Mutant(
        "engine-one-key-one-item",
        "local/transactions.py",
        "        target = (table.name, write.place)",
        "        target = write.place",
        "a transaction refuses two items of two tables, because their keys are the same",
        test=f"{_TRANSACTIONS}::test_the_same_key_in_two_tables_is_two_items",
    ),
    Mutant(
        "engine-refusals-show-the-item",
        "local/transactions.py",
        "    if write.return_old and old is not None:",
        "    if old is not None:",
        "a program reads the item of a failed condition, which AWS shows only if it is asked to",
        test=f"{_TRANSACTIONS}::test_every_failed_condition_has_its_reason_in_its_position",
    ),
    Mutant(
        "engine-late-entries-win",
        "local/tables.py",
        """        if self._late:
            self.settle()
        units""",
        "        units",
        "an index shows what an item was before its last write, for ever",
        test="tests/unit/local/test_tables.py::"
        "test_a_write_after_the_lag_comes_behind_those_that_still_lag",
    ),
    Mutant(
        "engine-latest-skips-what-comes-late",
        "local/shards.py",
        "                if chunk[index].created <= published:",
        "                if chunk[index].created <= float('inf'):",
        "a reader that begins at LATEST misses what was written and not yet to be read",
        test="tests/unit/local/test_iterators.py::"
        "test_latest_comes_before_what_is_written_and_not_published",
    ),
    Mutant(
        "engine-latest-of-a-trimmed-shard-is-lost",
        "local/shards.py",
        "        return max(self.start, self.trimmed)",
        "        return self.start",
        "a reader that begins at LATEST of a shard without records is told of a loss",
        test="tests/unit/local/test_iterators.py::"
        "test_latest_of_a_shard_whose_records_are_gone_can_be_read",
    ),
    Mutant(
        "engine-closed-shards-end-early",
        "local/streams_api.py",
        "at_end = shard.closed is not None and after >= shard.last",
        "at_end = shard.closed is not None",
        "the first page of a closed shard is its last one, and the rest is lost",
        test="tests/unit/local/test_shards.py::"
        "test_a_closed_shard_ends_behind_its_last_record_and_not_before_it_is_published",
    ),
    Mutant(
        "engine-commands-are-not-kept",
        "local/server.py",
        """            self.changes += 1
        except""",
        """        except""",
        "a split of a shard is lost when `streamkit local --data` is killed an hour later",
        test="tests/integration/test_local_server.py::"
        "test_what_changes_the_engine_is_counted_so_that_it_is_kept",
    ),
    Mutant(
        "engine-answers-web-pages",
        "local/server.py",
        """            _refuse_web_pages(headers)
""",
        "",
        "any web page reads and writes the tables of who looks at it",
        test="tests/integration/test_local_server.py::test_web_pages_do_not_reach_the_data",
    ),
    Mutant(
        "engine-deep-json-is-a-defect",
        "local/engine.py",
        "        except RecursionError:",
        "        except MemoryError:",
        "a body of 5,000 levels is answered with a 500 and a traceback",
        test=f"{_REFUSALS}::test_a_body_that_cannot_be_read_is_the_caller_s_fault",
    ),
    Mutant(
        "engine-decompresses-without-bound",
        "local/wire.py",
        """        if room < 0:
            raise ApiError(""",
        """        if room is None:
            raise ApiError(""",
        "a request of a few bytes fills the memory",
        test="tests/unit/local/test_regions.py::test_a_small_body_does_not_become_a_huge_one",
    ),
    Mutant(
        "engine-packs-nothing",
        "local/shards.py",
        "                    full.pack()",
        "                    full.images()",
        "each record of a stream keeps its images as they were given",
        test="tests/unit/local/test_streams.py::test_a_record_of_a_full_chunk_is_packed_in_every_view",
    ),
    Mutant(
        "engine-frees-all-at-once",
        "local/waste.py",
        "range(min(_SLICE, len(lists)))",
        "range(len(lists))",
        "a trim of a million records stops the loop for seconds",
        test="tests/unit/local/test_streams.py::test_what_is_trimmed_is_freed_a_slice_at_a_time",
    ),
    Mutant(
        "woken-by-address",
        "testing/loop.py",
        "sorted(ready, key=_number)",
        "list(ready)",
        "a cancelled group wakes its tasks in the order of their addresses: a seed is many runs",
        test="tests/simulation/test_repeats.py::test_tasks_that_are_cancelled_together_wake_in_the_same_order_wherever_they_are_in_memory",
    ),
    Mutant(
        "chance-of-its-own",
        "testing/chance.py",
        "rng.getrandbits(64) if seed is None else seed",
        "seed",
        "a generator that is made without a seed draws other numbers in each run",
        test="tests/simulation/test_repeats.py::test_a_run_makes_the_same_calls_whenever_it_is_played_again",
    ),
    Mutant(
        "engine-token-of-the-first-action",
        "local/transactions.py",
        "digest = digest_of(actions)",
        "digest = digest_of(actions[:1])",
        "a transaction whose other actions differ is taken for the one before",
        test="tests/unit/local/test_transactions.py::test_a_token_carries_out_a_transaction_once_in_ten_minutes",
    ),
    Mutant(
        "engine-one-item-in-two-tables",
        "local/transactions.py",
        "        target = (table.name, write.place)\n        if",
        "        target = write.place\n        if",
        "a transaction over two tables refuses items with equal keys",
        test="tests/unit/local/test_transactions.py::test_equal_keys_in_two_tables_are_two_items",
    ),
    Mutant(
        "engine-refusals-show-items",
        "local/transactions.py",
        "if write.return_old and old is not None:",
        "if old is not None:",
        "a refused transaction shows items that nobody asked for",
        test="tests/unit/local/test_transactions.py::test_every_failed_condition_has_its_reason_in_its_position",
    ),
    Mutant(
        "engine-latest-before-what-is-trimmed",
        "local/shards.py",
        "return max(self.start, self.trimmed)",
        "return self.start",
        "LATEST of a shard of which all is trimmed cannot be read",
        test="tests/unit/local/test_iterators.py::test_latest_of_a_shard_of_which_all_is_trimmed_sees_its_next_record",
    ),
    Mutant(
        "engine-stream-disabled-twice",
        "local/streams.py",
        "        if self.disabled is not None:\n            return\n        self.settle()",
        "        self.settle()",
        "a disabled stream lives longer because its table is deleted",
        test="tests/unit/local/test_streams.py::test_a_stream_that_is_disabled_stays_so_since_then",
    ),
    Mutant(
        "engine-starts-in-another-part",
        "local/expressions/keys.py",
        "        if tuple(entry[:count]) != self.before:\n            return False\n",
        "",
        "a page may begin where the query never was",
        test="tests/unit/local/test_several_attributes.py::test_a_starting_key_that_lacks_an_attribute_is_refused",
    ),
    Mutant(
        "redelivery-of-results-alone",
        "testing/stops.py",
        "if _has_results(written) or any(map(self._finishes, written)):",
        "if _has_results(written):",
        "`redeliver` lets nothing come twice for a handler that only sends",
        test="tests/unit/test_strict_harness.py::test_what_writes_nothing_comes_again_too",
    ),
    Mutant(
        "compared-with-what-must-be-there-alone",
        "testing/final.py",
        "for key in sorted(found.keys() | wanted.keys(), key=str):",
        "for key in sorted(wanted.keys(), key=str):",
        "a trial overlooks what must not be in the table",
        test="tests/unit/test_final.py::test_what_is_there_and_must_not_be_differs_as_well_as_what_is_missing",
    ),
)
