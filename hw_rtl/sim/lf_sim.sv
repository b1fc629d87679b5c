// The accelerator behind AXI, and its DRAM, for simulation.
module lf_sim #(
  parameter int unsigned Lanes = 16,
  parameter int unsigned BufferBytes = 262144,
  parameter int unsigned DramBeats = 1 << 22
) (
  input  logic        clk_i,
  input  logic        rst_ni,
  // AXI4-Lite slave of the accelerator.
  input  logic        awvalid_i,
  output logic        awready_o,
  input  logic [11:0] awaddr_i,
  input  logic        wvalid_i,
  output logic        wready_o,
  input  logic [31:0] wdata_i,
  output logic        bvalid_o,
  input  logic        bready_i,
  output logic [1:0]  bresp_o,
  input  logic        arvalid_i,
  output logic        arready_o,
  input  logic [11:0] araddr_i,
  output logic        rvalid_o,
  input  logic        rready_i,
  output logic [31:0] rdata_o,
  output logic [1:0]  rresp_o,
  output logic        irq_o
);
  logic         rd_req_valid;
  logic         rd_req_ready;
  logic [31:0]  rd_req_addr;
  logic [7:0]   rd_len;
  logic         rd_valid;
  logic         rd_ready;
  logic [127:0] rd_data;
  logic         rd_err;
  logic         wr_req_valid;
  logic         wr_req_ready;
  logic [31:0]  wr_req_addr;
  logic [7:0]   wr_len;
  logic         wr_valid;
  logic         wr_ready;
  logic [127:0] wr_data;
  logic [15:0]  wr_strb;
  logic         wr_last;
  logic         wr_resp_valid;
  logic         wr_resp_err;
  logic         wr_resp_ready;
  logic [2:0]   rd_size;
  logic [1:0]   rd_burst;
  logic [2:0]   rd_prot;
  logic [3:0]   rd_cache;
  logic [2:0]   wr_size;
  logic [1:0]   wr_burst;
  logic [2:0]   wr_prot;
  logic [3:0]   wr_cache;
  logic         unused;

  lf_axi #(
    .Lanes      (Lanes),
    .BufferBytes(BufferBytes)
  ) u_axi (
    .clk_i,
    .rst_ni,
    .irq_o,
    .m_arvalid_o(rd_req_valid),
    .m_arready_i(rd_req_ready),
    .m_araddr_o (rd_req_addr),
    .m_arlen_o  (rd_len),
    .m_arsize_o  (rd_size),
    .m_arburst_o (rd_burst),
    .m_arprot_o  (rd_prot),
    .m_arcache_o (rd_cache),
    .m_rvalid_i (rd_valid),
    .m_rready_o (rd_ready),
    .m_rdata_i  (rd_data),
    .m_rresp_i  ({rd_err, 1'b0}),
    .m_rlast_i  (1'b0),
    .m_awvalid_o(wr_req_valid),
    .m_awready_i(wr_req_ready),
    .m_awaddr_o (wr_req_addr),
    .m_awlen_o  (wr_len),
    .m_awsize_o  (wr_size),
    .m_awburst_o (wr_burst),
    .m_awprot_o  (wr_prot),
    .m_awcache_o (wr_cache),
    .m_wvalid_o (wr_valid),
    .m_wready_i (wr_ready),
    .m_wdata_o  (wr_data),
    .m_wstrb_o  (wr_strb),
    .m_wlast_o  (wr_last),
    .m_bvalid_i (wr_resp_valid),
    .m_bready_o (wr_resp_ready),
    .m_bresp_i  ({wr_resp_err, 1'b0}),
    .s_awvalid_i(awvalid_i),
    .s_awready_o(awready_o),
    .s_awaddr_i (awaddr_i),
    .s_wvalid_i (wvalid_i),
    .s_wready_o (wready_o),
    .s_wdata_i  (wdata_i),
    .s_wstrb_i  ('1),
    .s_bvalid_o (bvalid_o),
    .s_bready_i (bready_i),
    .s_bresp_o  (bresp_o),
    .s_arvalid_i(arvalid_i),
    .s_arready_o(arready_o),
    .s_araddr_i (araddr_i),
    .s_rvalid_o (rvalid_o),
    .s_rready_i (rready_i),
    .s_rdata_o  (rdata_o),
    .s_rresp_o  (rresp_o)
  );
  // The same with every burst; responses are taken at once.
  assign unused = ^{rd_size, rd_burst, rd_prot, rd_cache, wr_size, wr_burst, wr_prot, wr_cache,
                    wr_resp_ready};

  lf_dram #(
    .Beats(DramBeats)
  ) u_dram (
    .clk_i,
    .rst_ni,
    .rd_req_valid_i (rd_req_valid),
    .rd_req_ready_o (rd_req_ready),
    .rd_req_addr_i  (rd_req_addr),
    .rd_req_beats_i (rd_len + 8'd1),
    .rd_valid_o     (rd_valid),
    .rd_ready_i     (rd_ready),
    .rd_data_o      (rd_data),
    .rd_err_o       (rd_err),
    .wr_req_valid_i (wr_req_valid),
    .wr_req_ready_o (wr_req_ready),
    .wr_req_addr_i  (wr_req_addr),
    .wr_req_beats_i (wr_len + 8'd1),
    .wr_valid_i     (wr_valid),
    .wr_ready_o     (wr_ready),
    .wr_data_i      (wr_data),
    .wr_strb_i      (wr_strb),
    .wr_last_i      (wr_last),
    .wr_resp_valid_o(wr_resp_valid),
    .wr_resp_err_o  (wr_resp_err)
  );
endmodule
