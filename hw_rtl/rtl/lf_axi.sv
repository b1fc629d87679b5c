// The accelerator with the ports of a system on chip: AXI4 master (128 bits, INCR bursts, one identity) and
// AXI4-Lite slave for its registers.
`include "lf_assert.svh"

module lf_axi
  import lf_port_pkg::*;
#(
  parameter int unsigned Lanes = 16,           // channels side by side: 16, 32 or 64
  parameter int unsigned BufferBytes = 262144  // a multiple of 4 * Lanes
) (
  input  logic         clk_i,
  input  logic         rst_ni,
  output logic         irq_o,  // level
  // AXI4 master.
  output logic         m_arvalid_o,
  input  logic         m_arready_i,
  output logic [31:0]  m_araddr_o,
  output logic [7:0]   m_arlen_o,
  output logic [2:0]   m_arsize_o,
  output logic [1:0]   m_arburst_o,
  output logic [2:0]   m_arprot_o,
  output logic [3:0]   m_arcache_o,
  input  logic         m_rvalid_i,
  output logic         m_rready_o,
  input  logic [127:0] m_rdata_i,
  input  logic [1:0]   m_rresp_i,
  input  logic         m_rlast_i,
  output logic         m_awvalid_o,
  input  logic         m_awready_i,
  output logic [31:0]  m_awaddr_o,
  output logic [7:0]   m_awlen_o,
  output logic [2:0]   m_awsize_o,
  output logic [1:0]   m_awburst_o,
  output logic [2:0]   m_awprot_o,
  output logic [3:0]   m_awcache_o,
  output logic         m_wvalid_o,
  input  logic         m_wready_i,
  output logic [127:0] m_wdata_o,
  output logic [15:0]  m_wstrb_o,
  output logic         m_wlast_o,
  input  logic         m_bvalid_i,
  output logic         m_bready_o,
  input  logic [1:0]   m_bresp_i,
  // AXI4-Lite slave: whole registers of 32 bits.
  input  logic         s_awvalid_i,
  output logic         s_awready_o,
  input  logic [11:0]  s_awaddr_i,
  input  logic         s_wvalid_i,
  output logic         s_wready_o,
  input  logic [31:0]  s_wdata_i,
  input  logic [3:0]   s_wstrb_i,
  output logic         s_bvalid_o,
  input  logic         s_bready_i,
  output logic [1:0]   s_bresp_o,
  input  logic         s_arvalid_i,
  output logic         s_arready_o,
  input  logic [11:0]  s_araddr_i,
  output logic         s_rvalid_o,
  input  logic         s_rready_i,
  output logic [31:0]  s_rdata_o,
  output logic [1:0]   s_rresp_o
);
  localparam logic [2:0] BeatSize = 3'd4;  // 16 bytes
  localparam logic [1:0] Increment = 2'b01;
  localparam logic [3:0] Bufferable = 4'b0011;
  localparam logic [1:0] Okay = 2'b00;
  localparam logic [1:0] SlaveError = 2'b10;

  burst_t      rd_burst;
  burst_t      wr_burst;
  write_beat_t wr_beat;
  logic        write;
  logic        read;
  logic        bvalid_q;
  logic        berror_q;
  logic        rvalid_q;
  logic        unused;

  lf_core #(
    .Lanes      (Lanes),
    .BufferBytes(BufferBytes)
  ) u_core (
    .clk_i,
    .rst_ni,
    .reg_i           ('{valid: (write && s_wstrb_i == '1) || read, write: write,
                        addr: write ? s_awaddr_i : s_araddr_i, wdata: s_wdata_i}),
    .reg_rdata_o     (s_rdata_o),
    .irq_o,
    .rd_burst_o      (rd_burst),
    .rd_burst_ready_i(m_arready_i),
    .rd_beat_i       ('{valid: m_rvalid_i, data: m_rdata_i, err: m_rresp_i[1]}),
    .rd_beat_ready_o (m_rready_o),
    .wr_burst_o      (wr_burst),
    .wr_burst_ready_i(m_awready_i),
    .wr_beat_o       (wr_beat),
    .wr_beat_ready_i (m_wready_i),
    .wr_response_i   ('{valid: m_bvalid_i, err: m_bresp_i[1]})
  );

  assign m_arvalid_o = rd_burst.valid;
  assign m_araddr_o  = rd_burst.addr;
  assign m_arlen_o   = rd_burst.beats - 8'd1;
  assign m_arsize_o  = BeatSize;
  assign m_arburst_o = Increment;
  assign m_arprot_o  = '0;
  assign m_arcache_o = Bufferable;
  assign m_awvalid_o = wr_burst.valid;
  assign m_awaddr_o  = wr_burst.addr;
  assign m_awlen_o   = wr_burst.beats - 8'd1;
  assign m_awsize_o  = BeatSize;
  assign m_awburst_o = Increment;
  assign m_awprot_o  = '0;
  assign m_awcache_o = Bufferable;
  assign m_wvalid_o  = wr_beat.valid;
  assign m_wdata_o   = wr_beat.data;
  assign m_wstrb_o   = wr_beat.strb;
  assign m_wlast_o   = wr_beat.last;
  assign m_bready_o  = 1'b1;
  assign unused      = ^{m_rlast_i, m_rresp_i[0], m_bresp_i[0]};  // the core counts beats

  // Registers: a write once address and data are both there; writes go before reads.
  assign write       = s_awvalid_i && s_wvalid_i && !bvalid_q;
  assign read        = s_arvalid_i && !rvalid_q && !write;
  assign s_awready_o = write;
  assign s_wready_o  = write;
  assign s_arready_o = read;
  assign s_bvalid_o  = bvalid_q;
  assign s_bresp_o   = berror_q ? SlaveError : Okay;  // parts of a register are not written
  assign s_rvalid_o  = rvalid_q;
  assign s_rresp_o   = Okay;

  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) begin
      bvalid_q <= 1'b0;
      berror_q <= 1'b0;
      rvalid_q <= 1'b0;
    end else begin
      bvalid_q <= write || (bvalid_q && !s_bready_i);
      rvalid_q <= read || (rvalid_q && !s_rready_i);
      if (write) berror_q <= s_wstrb_i != '1;
    end
  end

`ifndef SYNTHESIS
  // Before reset registers hold anything. (The reset itself is asynchronous here, and no condition.)
  bit running_q;  // begins with 0
  always_ff @(posedge clk_i or negedge rst_ni) begin
    if (!rst_ni) running_q <= 1'b0;
    else running_q <= 1'b1;
  end
`endif

  // AXI4-Lite: a response stays until it is taken.
  `LF_HELD(WriteResponseHeld, s_bvalid_o, s_bready_i, s_bresp_o, clk_i, !running_q)
  `LF_HELD(ReadResponseHeld, s_rvalid_o, s_rready_i, s_rdata_o, clk_i, !running_q)
  // AXI4: what is offered stays until it is accepted; a burst keeps within 4 KiB.
  `LF_HELD(ReadHeld, m_arvalid_o, m_arready_i, {m_araddr_o, m_arlen_o}, clk_i, !running_q)
  `LF_HELD(WriteHeld, m_awvalid_o, m_awready_i, {m_awaddr_o, m_awlen_o}, clk_i, !running_q)
  `LF_HELD(BeatHeld, m_wvalid_o, m_wready_i, {m_wdata_o, m_wstrb_o, m_wlast_o}, clk_i, !running_q)
  `LF_ASSERT(ReadInPage, !m_arvalid_o || 13'(m_araddr_o[11:0]) + 13'(rd_burst.beats) * 13'd16 <= 13'd4096,
             "a read crosses 4 KiB", clk_i, !running_q)
  `LF_ASSERT(WriteInPage, !m_awvalid_o || 13'(m_awaddr_o[11:0]) + 13'(wr_burst.beats) * 13'd16 <= 13'd4096,
             "a write crosses 4 KiB", clk_i, !running_q)
endmodule
