// The one engine at the memory port: loads, stores and the fetching of the program.
//
// Reads and writes are separate channels. Up to Outstanding requests are under way in each; answers come in
// the order of the requests. Whatever goes wrong, every request that memory has seen gets all its beats:
// those of reads are thrown away, those of writes have no strobes.
`include "lf_assert.svh"

module lf_dma
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
  import lf_port_pkg::*;
#(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferWords = 16384
) (
  input  logic                clk_i,
  input  logic                rst_ni,
  input  logic                stop_i,
  input  region_t             read_region_i,
  input  region_t             write_region_i,
  output logic                idle_o,          // memory owes nothing and is owed nothing
  // Heads of the two queues: 0 loads, 1 stores.
  input  head_t     [1:0]       head_i,
  input  transfer_t [1:0]       transfer_i,
  output logic      [1:0]       take_o,
  output logic      [1:0]       done_o,
  output fault_t    [1:0]       fault_o,
  // Fetching of the program. Beats always are accepted.
  input  logic                fetch_valid_i,
  input  request_t            fetch_i,
  output logic                fetch_ready_o,
  output read_beat_t          fetch_beat_o,
  // Buffer.
  output buffer_request_t     wr_o,
  output logic [Lanes*8-1:0]  wr_data_o,
  input  logic                wr_grant_i,
  output buffer_request_t     rd_o,
  input  logic                rd_grant_i,
  input  logic [Lanes*8-1:0]  rd_data_i,
  // Factors and tables.
  output aux_write_t          aux_o,
  output logic [Lanes*8-1:0]  aux_data_o,
  // What crossed the memory port in this cycle, for the counters.
  output port_events_t        events_o,
  // Memory port.
  output burst_t              rd_burst_o,
  input  logic                rd_burst_ready_i,
  input  read_beat_t          rd_beat_i,
  output logic                rd_beat_ready_o,
  output burst_t              wr_burst_o,
  input  logic                wr_burst_ready_i,
  output write_beat_t         wr_beat_o,
  input  logic                wr_beat_ready_i,
  input  write_response_t     wr_response_i
);
  localparam int unsigned PointerWidth = $clog2(Outstanding);

  // Pointers wrap by themselves; a request that does not cross a multiple of MaxBeats does not cross a page
  // of 4 KiB.
  if (Outstanding != 1 << PointerWidth) begin : gen_bad_outstanding
    $error("lf_dma: found Outstanding = %0d; accepted: powers of 2", Outstanding);
  end
  if (PageBytes % (MaxBeats * BeatBytes) != 0) begin : gen_bad_beats
    $error("lf_dma: found MaxBeats = %0d; accepted: powers of 2, up to %0d", MaxBeats, PageBytes / BeatBytes);
  end

  typedef struct packed {
    logic       fetch;  // for the program, else for a load
    class_e     class_;
    logic [6:0] beats;
  } read_t;

  typedef struct packed {
    class_e     class_;
    logic [6:0] beats;
    logic       last;   // of its store
  } write_t;

  // Reads.
  read_t                   reads_q [Outstanding];
  logic [PointerWidth-1:0] read_new_q;
  logic [PointerWidth-1:0] read_old_q;
  logic [PointerWidth:0]   reads_under_way_q;
  logic [6:0]              read_beats_q;  // of the oldest, that have come
  logic                    read_req_valid_q;
  logic [27:0]             read_req_beat_q;
  logic [6:0]              read_req_beats_q;
  logic                    read_free;
  logic                    read_push;
  request_t                read_pushed;
  read_t                   read_old;
  logic                    read_beat;
  logic                    fetch_comes;
  logic                    read_end;
  logic                    load_valid;
  request_t                load_request;
  logic                    load_ready;
  logic                    load_beat_ready;

  // Writes.
  write_t                  writes_q [Outstanding];
  logic [PointerWidth-1:0] write_new_q;
  logic [PointerWidth-1:0] write_data_q;  // whose beats are sent
  logic [PointerWidth-1:0] write_old_q;   // whose response is awaited
  logic [PointerWidth:0]   writes_under_way_q;
  logic [PointerWidth:0]   writes_unsent_q;
  logic [6:0]              write_beats_q;  // of the one whose beats are sent, that have gone
  logic                    write_req_valid_q;
  logic [27:0]             write_req_beat_q;
  logic [6:0]              write_req_beats_q;
  logic                    write_push;
  write_t                  write_now;
  logic                    write_end;
  logic                    write_load;  // a beat goes to the output register
  logic                    store_valid;
  request_t                store_request;
  logic                    store_ready;
  logic                    store_beat_valid;
  logic                    store_beat_ready;
  logic [127:0]            store_beat;
  logic                    write_valid_q;
  logic [127:0]            write_beat_q;
  logic                    write_strobe_q;
  logic                    write_last_q;
  class_e                  write_class_q;
  logic                    store_done;
  logic                    unused;

  lf_load #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_load (
    .clk_i,
    .rst_ni,
    .stop_i,
    .region_i       (read_region_i),
    .head_valid_i   (head_i[0].valid),
    .may_start_i    (head_i[0].may_start),
    .transfer_i     (transfer_i[0]),
    .entry_i        (head_i[0].entry),
    .take_o         (take_o[0]),
    .done_o         (done_o[0]),
    .fault_o        (fault_o[0]),
    .request_valid_o(load_valid),
    .request_o      (load_request),
    .request_ready_i(load_ready),
    .beat_valid_i   (rd_beat_i.valid && reads_under_way_q != '0 && !read_old.fetch),
    .beat_ready_o   (load_beat_ready),
    .beat_i         (rd_beat_i.data),
    .beat_err_i     (rd_beat_i.err),
    .wr_valid_o     (wr_o.valid),
    .wr_word_o      (wr_o.word),
    .wr_data_o,
    .wr_grant_i,
    .aux_valid_o    (aux_o.valid),
    .aux_space_o    (aux_o.space),
    .aux_word_o     (aux_o.word),
    .aux_data_o
  );

  lf_store #(
    .Lanes      (Lanes),
    .BufferWords(BufferWords)
  ) u_store (
    .clk_i,
    .rst_ni,
    .stop_i,
    .region_i       (write_region_i),
    .head_valid_i   (head_i[1].valid),
    .may_start_i    (head_i[1].may_start),
    .transfer_i     (transfer_i[1]),
    .entry_i        (head_i[1].entry),
    .take_o         (take_o[1]),
    .done_i         (store_done),
    .bus_error_i    (wr_response_i.valid && wr_response_i.err && !stop_i),
    .fault_o        (fault_o[1]),
    .request_valid_o(store_valid),
    .request_o      (store_request),
    .request_ready_i(store_ready),
    .beat_valid_o   (store_beat_valid),
    .beat_ready_i   (store_beat_ready),
    .beat_o         (store_beat),
    .rd_valid_o     (rd_o.valid),
    .rd_word_o      (rd_o.word),
    .rd_grant_i,
    .rd_data_i
  );

  // Requests to read: the program goes first, since everything waits for it, and it seldom asks.
  assign read_free     = reads_under_way_q != (PointerWidth + 1)'(Outstanding) &&
                         (!read_req_valid_q || rd_burst_ready_i) && !stop_i;
  assign fetch_ready_o = read_free;
  assign load_ready    = read_free && !fetch_valid_i;
  assign read_push     = read_free && (fetch_valid_i || load_valid);
  assign read_pushed   = fetch_valid_i ? fetch_i : load_request;

  // Beats that are read.
  assign read_old           = reads_q[read_old_q];
  assign rd_beat_ready_o    = reads_under_way_q != '0 && (read_old.fetch || load_beat_ready);
  assign read_beat          = rd_beat_i.valid && rd_beat_ready_o;
  assign read_end           = read_beat && read_beats_q + 7'd1 == read_old.beats;
  assign fetch_comes        = read_beat && read_old.fetch && !stop_i;
  assign fetch_beat_o       = '{valid: fetch_comes, data: rd_beat_i.data, err: fetch_comes && rd_beat_i.err};

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      for (int unsigned k = 0; k < Outstanding; k++) reads_q[k] <= '0;
      read_new_q        <= '0;
      read_old_q        <= '0;
      reads_under_way_q <= '0;
      read_beats_q      <= '0;
      read_req_valid_q  <= 1'b0;
      read_req_beat_q   <= '0;
      read_req_beats_q  <= '0;
    end else begin
      if (read_push) begin
        reads_q[read_new_q] <= '{fetch: fetch_valid_i, class_: read_pushed.class_, beats: read_pushed.beats};
        read_new_q          <= read_new_q + PointerWidth'(1);
        read_req_beat_q     <= read_pushed.beat;
        read_req_beats_q    <= read_pushed.beats;
      end
      if (read_push || rd_burst_ready_i) read_req_valid_q <= read_push;
      if (read_beat) read_beats_q <= read_end ? '0 : read_beats_q + 7'd1;
      if (read_end) read_old_q <= read_old_q + PointerWidth'(1);
      reads_under_way_q <= reads_under_way_q + (PointerWidth + 1)'(read_push) - (PointerWidth + 1)'(read_end);
    end
  end

  // Requests to write.
  assign store_ready = writes_under_way_q != (PointerWidth + 1)'(Outstanding) &&
                       (!write_req_valid_q || wr_burst_ready_i) && !stop_i;
  assign write_push  = store_ready && store_valid;

  // Beats that are written: through a register, so that they stay as they are until memory takes them.
  assign write_now        = writes_q[write_data_q];
  assign store_beat_ready = writes_unsent_q != '0 && !stop_i && (!write_valid_q || wr_beat_ready_i);
  assign write_load       = writes_unsent_q != '0 && (stop_i || store_beat_valid) &&
                            (!write_valid_q || wr_beat_ready_i);
  assign write_end        = write_load && write_beats_q + 7'd1 == write_now.beats;
  assign store_done       = wr_response_i.valid && !wr_response_i.err && !stop_i &&
                            writes_q[write_old_q].last;
  assign done_o[1]        = store_done;

  always_ff @(posedge clk_i) begin
    if (!rst_ni) begin
      for (int unsigned k = 0; k < Outstanding; k++) writes_q[k] <= '0;
      write_new_q        <= '0;
      write_data_q       <= '0;
      write_old_q        <= '0;
      writes_under_way_q <= '0;
      writes_unsent_q    <= '0;
      write_beats_q      <= '0;
      write_req_valid_q  <= 1'b0;
      write_req_beat_q   <= '0;
      write_req_beats_q  <= '0;
      write_valid_q      <= 1'b0;
      write_beat_q       <= '0;
      write_strobe_q     <= 1'b0;
      write_last_q       <= 1'b0;
      write_class_q      <= ClassInput;
    end else begin
      if (write_push) begin
        writes_q[write_new_q] <= '{class_: store_request.class_, beats: store_request.beats,
                                   last: store_request.last};
        write_new_q           <= write_new_q + PointerWidth'(1);
        write_req_beat_q      <= store_request.beat;
        write_req_beats_q     <= store_request.beats;
      end
      if (write_push || wr_burst_ready_i) write_req_valid_q <= write_push;
      if (write_load) begin
        write_beat_q   <= store_beat;
        write_strobe_q <= !stop_i;
        write_last_q   <= write_end;
        write_class_q  <= write_now.class_;
        write_beats_q  <= write_end ? '0 : write_beats_q + 7'd1;
      end
      if (write_load || wr_beat_ready_i) write_valid_q <= write_load;
      if (write_end) write_data_q <= write_data_q + PointerWidth'(1);
      if (wr_response_i.valid) write_old_q <= write_old_q + PointerWidth'(1);
      writes_unsent_q    <= writes_unsent_q + (PointerWidth + 1)'(write_push) -
                            (PointerWidth + 1)'(write_end);
      writes_under_way_q <= writes_under_way_q + (PointerWidth + 1)'(write_push) -
                            (PointerWidth + 1)'(wr_response_i.valid);
    end
  end

  assign rd_burst_o = '{valid: read_req_valid_q, addr: {read_req_beat_q, 4'd0},
                        beats: {1'b0, read_req_beats_q}};
  assign wr_burst_o = '{valid: write_req_valid_q, addr: {write_req_beat_q, 4'd0},
                        beats: {1'b0, write_req_beats_q}};
  assign wr_beat_o  = '{valid: write_valid_q, data: write_beat_q, strb: {16{write_strobe_q}},
                        last: write_last_q};
  assign wr_o.mask  = Window'(1);
  assign rd_o.mask  = Window'(1);

  assign idle_o     = reads_under_way_q == '0 && writes_under_way_q == '0;
  assign events_o   = '{
    read:          read_beat,
    read_class:    read_old.class_,
    written:       write_valid_q && wr_beat_ready_i && write_strobe_q,
    written_class: write_class_q,
    moved:         read_beat || (write_valid_q && wr_beat_ready_i) || wr_response_i.valid
  };
  assign unused     = ^{read_pushed.last, writes_q[write_old_q].class_, writes_q[write_old_q].beats,
                        write_now.last};

  `LF_ASSERT(ResponseAskedFor, !wr_response_i.valid || writes_under_way_q != '0,
             "memory answers a write that it was not asked for")
  `LF_ASSERT(ReadInPage, !read_req_valid_q || 7'(read_req_beat_q[5:0]) + read_req_beats_q <= 7'(MaxBeats),
             "a read crosses a multiple of MaxBeats")
  `LF_ASSERT(WriteInPage, !write_req_valid_q || 7'(write_req_beat_q[5:0]) + write_req_beats_q <= 7'(MaxBeats),
             "a write crosses a multiple of MaxBeats")
  `LF_HELD(ReadHeld, rd_burst_o.valid, rd_burst_ready_i, rd_burst_o)
  `LF_HELD(WriteHeld, wr_burst_o.valid, wr_burst_ready_i, wr_burst_o)
  `LF_HELD(BeatHeld, wr_beat_o.valid, wr_beat_ready_i, wr_beat_o)
endmodule
