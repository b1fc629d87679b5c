// The one engine at the memory port: loads, stores and the fetching of the program.
//
// Reads and writes are separate channels. Up to Outstanding requests are under way in each; answers come in the order of the requests. Whatever goes
// wrong, every request that memory has seen gets all its beats: those of reads are thrown away, those of writes have no strobes.
`include "lf_assert.svh"

module lf_dma
  import lf_isa_pkg::*;
  import lf_dma_pkg::*;
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
  input  logic      [1:0]       head_valid_i,
  input  logic      [1:0]       may_start_i,
  input  transfer_t [1:0]       transfer_i,
  input  entry_t    [1:0]       entry_i,
  output logic      [1:0]       take_o,
  output logic      [1:0]       done_o,
  output fault_t    [1:0]       fault_o,
  // Fetching of the program. Beats always are accepted.
  input  logic                fetch_valid_i,
  input  request_t            fetch_i,
  output logic                fetch_ready_o,
  output logic                fetch_beat_valid_o,
  output logic [127:0]        fetch_beat_o,
  output logic                fetch_err_o,
  // Buffer.
  output logic                wr_valid_o,
  output logic [19:0]         wr_word_o,
  output logic [Lanes*8-1:0]  wr_data_o,
  input  logic                wr_grant_i,
  output logic                rd_valid_o,
  output logic [19:0]         rd_word_o,
  input  logic                rd_grant_i,
  input  logic [Lanes*8-1:0]  rd_data_i,
  // Factors and tables.
  output logic                aux_valid_o,
  output space_e              aux_space_o,
  output logic [19:0]         aux_word_o,
  output logic [Lanes*8-1:0]  aux_data_o,
  // What crossed the memory port in this cycle, for the counters.
  output logic                read_beat_o,
  output class_e              read_class_o,
  output logic [4:0]          written_bytes_o,
  output class_e              written_class_o,
  output logic                moved_o,         // anything crossed the port
  // Memory port. A request is accepted when valid and ready, and so is a beat.
  output logic                mem_rd_req_valid_o,
  input  logic                mem_rd_req_ready_i,
  output logic [31:0]         mem_rd_req_addr_o,
  output logic [7:0]          mem_rd_req_beats_o,
  input  logic                mem_rd_valid_i,
  output logic                mem_rd_ready_o,
  input  logic [127:0]        mem_rd_data_i,
  input  logic                mem_rd_err_i,
  output logic                mem_wr_req_valid_o,
  input  logic                mem_wr_req_ready_i,
  output logic [31:0]         mem_wr_req_addr_o,
  output logic [7:0]          mem_wr_req_beats_o,
  output logic                mem_wr_valid_o,
  input  logic                mem_wr_ready_i,
  output logic [127:0]        mem_wr_data_o,
  output logic [15:0]         mem_wr_strb_o,
  output logic                mem_wr_last_o,
  input  logic                mem_wr_resp_valid_i,
  input  logic                mem_wr_resp_err_i
);
  localparam int unsigned PointerWidth = $clog2(Outstanding);

  // Pointers wrap by themselves; a request that does not cross a multiple of MaxBeats does not cross a page of 4 KiB.
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
    .head_valid_i   (head_valid_i[0]),
    .may_start_i    (may_start_i[0]),
    .transfer_i     (transfer_i[0]),
    .entry_i        (entry_i[0]),
    .take_o         (take_o[0]),
    .done_o         (done_o[0]),
    .fault_o        (fault_o[0]),
    .request_valid_o(load_valid),
    .request_o      (load_request),
    .request_ready_i(load_ready),
    .beat_valid_i   (mem_rd_valid_i && reads_under_way_q != '0 && !read_old.fetch),
    .beat_ready_o   (load_beat_ready),
    .beat_i         (mem_rd_data_i),
    .beat_err_i     (mem_rd_err_i),
    .wr_valid_o,
    .wr_word_o,
    .wr_data_o,
    .wr_grant_i,
    .aux_valid_o,
    .aux_space_o,
    .aux_word_o,
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
    .head_valid_i   (head_valid_i[1]),
    .may_start_i    (may_start_i[1]),
    .transfer_i     (transfer_i[1]),
    .entry_i        (entry_i[1]),
    .take_o         (take_o[1]),
    .done_i         (store_done),
    .bus_error_i    (mem_wr_resp_valid_i && mem_wr_resp_err_i && !stop_i),
    .fault_o        (fault_o[1]),
    .request_valid_o(store_valid),
    .request_o      (store_request),
    .request_ready_i(store_ready),
    .beat_valid_o   (store_beat_valid),
    .beat_ready_i   (store_beat_ready),
    .beat_o         (store_beat),
    .rd_valid_o,
    .rd_word_o,
    .rd_grant_i,
    .rd_data_i
  );

  // Requests to read: the program goes first, since everything waits for it, and it seldom asks.
  assign read_free     = reads_under_way_q != (PointerWidth + 1)'(Outstanding) && (!read_req_valid_q || mem_rd_req_ready_i) && !stop_i;
  assign fetch_ready_o = read_free;
  assign load_ready    = read_free && !fetch_valid_i;
  assign read_push     = read_free && (fetch_valid_i || load_valid);
  assign read_pushed   = fetch_valid_i ? fetch_i : load_request;

  // Beats that are read.
  assign read_old           = reads_q[read_old_q];
  assign mem_rd_ready_o     = reads_under_way_q != '0 && (read_old.fetch || load_beat_ready);
  assign read_beat          = mem_rd_valid_i && mem_rd_ready_o;
  assign read_end           = read_beat && read_beats_q + 7'd1 == read_old.beats;
  assign fetch_beat_valid_o = read_beat && read_old.fetch && !stop_i;
  assign fetch_beat_o       = mem_rd_data_i;
  assign fetch_err_o        = fetch_beat_valid_o && mem_rd_err_i;

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
      if (read_push || mem_rd_req_ready_i) read_req_valid_q <= read_push;
      if (read_beat) read_beats_q <= read_end ? '0 : read_beats_q + 7'd1;
      if (read_end) read_old_q <= read_old_q + PointerWidth'(1);
      reads_under_way_q <= reads_under_way_q + (PointerWidth + 1)'(read_push) - (PointerWidth + 1)'(read_end);
    end
  end

  // Requests to write.
  assign store_ready = writes_under_way_q != (PointerWidth + 1)'(Outstanding) && (!write_req_valid_q || mem_wr_req_ready_i) && !stop_i;
  assign write_push  = store_ready && store_valid;

  // Beats that are written: through a register, so that they stay as they are until memory takes them.
  assign write_now        = writes_q[write_data_q];
  assign store_beat_ready = writes_unsent_q != '0 && !stop_i && (!write_valid_q || mem_wr_ready_i);
  assign write_load       = writes_unsent_q != '0 && (stop_i || store_beat_valid) && (!write_valid_q || mem_wr_ready_i);
  assign write_end        = write_load && write_beats_q + 7'd1 == write_now.beats;
  assign store_done       = mem_wr_resp_valid_i && !mem_wr_resp_err_i && !stop_i && writes_q[write_old_q].last;
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
        writes_q[write_new_q] <= '{class_: store_request.class_, beats: store_request.beats, last: store_request.last};
        write_new_q           <= write_new_q + PointerWidth'(1);
        write_req_beat_q      <= store_request.beat;
        write_req_beats_q     <= store_request.beats;
      end
      if (write_push || mem_wr_req_ready_i) write_req_valid_q <= write_push;
      if (write_load) begin
        write_beat_q   <= store_beat;
        write_strobe_q <= !stop_i;
        write_last_q   <= write_end;
        write_class_q  <= write_now.class_;
        write_beats_q  <= write_end ? '0 : write_beats_q + 7'd1;
      end
      if (write_load || mem_wr_ready_i) write_valid_q <= write_load;
      if (write_end) write_data_q <= write_data_q + PointerWidth'(1);
      if (mem_wr_resp_valid_i) write_old_q <= write_old_q + PointerWidth'(1);
      writes_unsent_q    <= writes_unsent_q + (PointerWidth + 1)'(write_push) - (PointerWidth + 1)'(write_end);
      writes_under_way_q <= writes_under_way_q + (PointerWidth + 1)'(write_push) - (PointerWidth + 1)'(mem_wr_resp_valid_i);
    end
  end

  assign mem_rd_req_valid_o = read_req_valid_q;
  assign mem_rd_req_addr_o  = {read_req_beat_q, 4'd0};
  assign mem_rd_req_beats_o = {1'b0, read_req_beats_q};
  assign mem_wr_req_valid_o = write_req_valid_q;
  assign mem_wr_req_addr_o  = {write_req_beat_q, 4'd0};
  assign mem_wr_req_beats_o = {1'b0, write_req_beats_q};
  assign mem_wr_valid_o     = write_valid_q;
  assign mem_wr_data_o      = write_beat_q;
  assign mem_wr_strb_o      = {16{write_strobe_q}};
  assign mem_wr_last_o      = write_last_q;

  assign idle_o          = reads_under_way_q == '0 && writes_under_way_q == '0;
  assign read_beat_o     = read_beat;
  assign read_class_o    = read_old.class_;
  assign written_bytes_o = write_valid_q && mem_wr_ready_i && write_strobe_q ? 5'd16 : 5'd0;
  assign written_class_o = write_class_q;
  assign moved_o         = read_beat || (write_valid_q && mem_wr_ready_i) || mem_wr_resp_valid_i;
  assign unused          = ^{read_pushed.last, writes_q[write_old_q].class_, writes_q[write_old_q].beats, write_now.last};

  `LF_ASSERT(ResponseAskedFor, !mem_wr_resp_valid_i || writes_under_way_q != '0, "memory answers a write that it was not asked for")
  `LF_ASSERT(ReadInPage, !read_req_valid_q || 7'(read_req_beat_q[5:0]) + read_req_beats_q <= 7'(MaxBeats), "a read crosses a multiple of MaxBeats")
  `LF_ASSERT(WriteInPage, !write_req_valid_q || 7'(write_req_beat_q[5:0]) + write_req_beats_q <= 7'(MaxBeats),
             "a write crosses a multiple of MaxBeats")
  `LF_HELD(ReadHeld, mem_rd_req_valid_o, mem_rd_req_ready_i, {mem_rd_req_addr_o, mem_rd_req_beats_o})
  `LF_HELD(WriteHeld, mem_wr_req_valid_o, mem_wr_req_ready_i, {mem_wr_req_addr_o, mem_wr_req_beats_o})
  `LF_HELD(BeatHeld, mem_wr_valid_o, mem_wr_ready_i, {mem_wr_data_o, mem_wr_strb_o, mem_wr_last_o})
endmodule
